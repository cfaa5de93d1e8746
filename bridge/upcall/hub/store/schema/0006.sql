-- What tells a text that answers from one that does not, old buttons from foreign ones, and
-- what becomes of a session that asks too much.
ALTER TABLE session ADD COLUMN asks TEXT NOT NULL DEFAULT 'shown';
ALTER TABLE card ADD COLUMN posted_ms INTEGER;
CREATE INDEX card_ref ON card (channel, ref) WHERE ref IS NOT NULL;

-- Further messages that show the same ask: what was posted twice because nobody knew.
CREATE TABLE card_copy (
    id INTEGER PRIMARY KEY,
    ask INTEGER NOT NULL REFERENCES ask (id),
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    ref TEXT NOT NULL,
    UNIQUE (channel, place, ref)
) STRICT;
CREATE INDEX card_copy_ask ON card_copy (ask);

-- Buttons of what is over, by SHA-256 only. `ask` is a public id: a line outlives the ask.
CREATE TABLE retired_token (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    ask TEXT NOT NULL,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    retired_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX retired_token_age ON retired_token (retired_ms);

-- Buttons of the hub's own questions; `subject` is a held text's id or a session's.
CREATE TABLE hub_button (
    id INTEGER PRIMARY KEY,
    token TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    ask TEXT NOT NULL,
    ref TEXT,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX hub_button_subject ON hub_button (subject);

-- Texts that nobody but their writer can tell the meaning of; nothing of them is sent.
CREATE TABLE held_text (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    session TEXT NOT NULL,
    event_key TEXT NOT NULL,
    identity TEXT NOT NULL,
    name TEXT,
    text TEXT NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
