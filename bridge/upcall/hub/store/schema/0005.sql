-- What routes, reminders and escalation need of a session, an ask and a conversation.
ALTER TABLE session ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE ask ADD COLUMN course TEXT NOT NULL DEFAULT '{}';

CREATE TABLE verbosity (
    id INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL UNIQUE,
    level TEXT NOT NULL CHECK (level IN ('lean', 'verbose', 'quiet'))
) STRICT;
