-- Who may answer, added and taken away while the hub runs; votes; and the lock.
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

ALTER TABLE claim ADD COLUMN person TEXT;
