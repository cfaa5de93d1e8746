-- What the hub must not lose. Integer keys; whoever writes names rows by their natural key.
-- Rows that are still open have partial indexes, so that closed ones cost nothing.

CREATE TABLE meta (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE session (
    id INTEGER PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('hosted', 'sdk', 'peer')),
    conversation_key TEXT NOT NULL,
    pid INTEGER NOT NULL,
    pid_start TEXT NOT NULL,
    asker_pid INTEGER NOT NULL,
    asker_start TEXT NOT NULL,
    title TEXT,
    repo TEXT,
    branch TEXT,
    machine TEXT,
    cwd TEXT,
    program TEXT,
    record_path TEXT,
    started_ms INTEGER NOT NULL,
    ended_ms INTEGER
, tags TEXT NOT NULL DEFAULT '[]', asks TEXT NOT NULL DEFAULT 'shown') STRICT;
CREATE INDEX session_living ON session (id) WHERE ended_ms IS NULL;

CREATE TABLE ask (
    id INTEGER PRIMARY KEY,
    public_id TEXT NOT NULL UNIQUE,
    session INTEGER NOT NULL REFERENCES session (id),
    action_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'claimed', 'closed')),
    body TEXT NOT NULL,
    revision TEXT NOT NULL,
    raised_ms INTEGER NOT NULL,
    outcome TEXT,
    deadline_ms INTEGER,
    deadline_boot_s REAL,
    boot_id TEXT NOT NULL,
    held_s REAL,
    handed_over INTEGER NOT NULL,
    rerun_key TEXT,
    answer TEXT,
    answered_by TEXT,
    resolved_by TEXT,
    closed_ms INTEGER,
    note TEXT NOT NULL
, askers TEXT NOT NULL DEFAULT '', course TEXT NOT NULL DEFAULT '{}') STRICT;
-- A session may ask again under the action id of an ask that is closed: another question.
CREATE UNIQUE INDEX ask_action ON ask (session, action_id) WHERE state <> 'closed';
CREATE INDEX ask_session ON ask (session);
CREATE INDEX ask_open ON ask (raised_ms) WHERE state <> 'closed';
CREATE INDEX ask_closed ON ask (closed_ms) WHERE state = 'closed';
CREATE INDEX ask_rerun ON ask (raised_ms) WHERE rerun_key IS NOT NULL;

CREATE TABLE inbound (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    event_key TEXT NOT NULL,
    content_key TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE (channel, event_key)
) STRICT;
CREATE INDEX inbound_age ON inbound (at_ms);

-- `inbound` is no reference: a claim outlives the inbound row that it came from.
CREATE TABLE claim (
    id INTEGER PRIMARY KEY,
    ask INTEGER NOT NULL REFERENCES ask (id),
    operator TEXT,
    channel TEXT NOT NULL,
    inbound INTEGER NOT NULL UNIQUE,
    reply_key TEXT NOT NULL,
    answer TEXT,
    declined INTEGER NOT NULL,
    origin TEXT,
    at_ms INTEGER NOT NULL,
    live INTEGER NOT NULL
, person TEXT) STRICT;
CREATE UNIQUE INDEX claim_live ON claim (ask) WHERE live = 1;
CREATE INDEX claim_ask ON claim (ask);

CREATE TABLE conversation (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed')),
    UNIQUE (key, channel)
) STRICT;
CREATE INDEX conversation_open ON conversation (id) WHERE state = 'open';

CREATE TABLE card (
    id INTEGER PRIMARY KEY,
    ask INTEGER NOT NULL REFERENCES ask (id),
    channel TEXT NOT NULL,
    place TEXT NOT NULL,
    ref TEXT, reminder TEXT, posted_ms INTEGER,
    UNIQUE (ask, channel, place)
) STRICT;
CREATE INDEX card_ref ON card (channel, ref) WHERE ref IS NOT NULL;

CREATE TABLE token (
    id INTEGER PRIMARY KEY,
    token TEXT NOT NULL UNIQUE,
    ask INTEGER NOT NULL REFERENCES ask (id),
    channel TEXT NOT NULL,
    choice TEXT NOT NULL
) STRICT;
CREATE INDEX token_ask ON token (ask);

CREATE TABLE delivery (
    id INTEGER PRIMARY KEY,
    effect TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    lane TEXT NOT NULL,
    target TEXT NOT NULL,
    place TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'sending', 'done', 'retry', 'uncertain', 'dead')),
    body BLOB NOT NULL,
    ask INTEGER REFERENCES ask (id),
    ref TEXT,
    attempt INTEGER NOT NULL,
    not_before_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    error TEXT
, conversation TEXT NOT NULL DEFAULT '') STRICT;
CREATE INDEX delivery_due ON delivery (id) WHERE state NOT IN ('done', 'dead');
CREATE INDEX delivery_ask ON delivery (ask) WHERE ask IS NOT NULL;
CREATE INDEX delivery_dead ON delivery (id) WHERE state = 'dead';

-- Attempts that did not simply succeed.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    delivery INTEGER NOT NULL REFERENCES delivery (id),
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    error TEXT,
    UNIQUE (delivery, number)
) STRICT;

CREATE TABLE notice (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES session (id),
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    file_id TEXT,
    file_name TEXT,
    mime TEXT
) STRICT;
CREATE INDEX notice_session ON notice (session);

CREATE TABLE gate (
    id INTEGER PRIMARY KEY,
    scope TEXT NOT NULL UNIQUE,
    closed_until_ms INTEGER NOT NULL
) STRICT;

-- Adapters' own facts, such as how far they have read.
CREATE TABLE cursor (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (channel, name)
) STRICT;

CREATE TABLE web_login (
    id INTEGER PRIMARY KEY,
    channel TEXT NOT NULL,
    digest TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    UNIQUE (channel, digest)
) STRICT;

-- A folder's name is bytes; not all of them are text.
CREATE TABLE root (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE
) STRICT;

-- `hash` covers the row and the hash before it. Ids are text: a line outlives what it is about.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY,
    encoding INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL,
    ask_id TEXT,
    session_id TEXT,
    facts TEXT NOT NULL,
    hash BLOB NOT NULL
) STRICT;

CREATE TABLE pairing (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    channel TEXT NOT NULL,
    identity TEXT NOT NULL,
    roles TEXT NOT NULL,
    rights TEXT,
    at_ms INTEGER NOT NULL,
    ask TEXT,
    UNIQUE (channel, identity)
) STRICT;

CREATE TABLE revoked (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    at_ms INTEGER NOT NULL
) STRICT;

-- At most one row: while it is there, nothing is taken but from the control socket.
CREATE TABLE hub_lock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    at_ms INTEGER NOT NULL,
    name TEXT NOT NULL,
    channel TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;

-- One person counts once, on however many channels; a withdrawn vote is not live.
CREATE TABLE vote (
    id INTEGER PRIMARY KEY,
    ask INTEGER NOT NULL REFERENCES ask (id),
    person TEXT NOT NULL,
    channel TEXT NOT NULL,
    name TEXT NOT NULL,
    detail TEXT NOT NULL,
    answer TEXT,
    inbound INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    here INTEGER NOT NULL,
    uid TEXT NOT NULL,
    live INTEGER NOT NULL,
    UNIQUE (ask, person, channel)
) STRICT;
CREATE INDEX vote_live ON vote (ask) WHERE live = 1;

CREATE TABLE verbosity (
    id INTEGER PRIMARY KEY,
    conversation TEXT NOT NULL UNIQUE,
    level TEXT NOT NULL CHECK (level IN ('lean', 'verbose', 'quiet'))
) STRICT;

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
