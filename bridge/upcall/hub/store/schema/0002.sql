-- Which processes count as the one that asked: they may not answer it themselves.
ALTER TABLE ask ADD COLUMN askers TEXT NOT NULL DEFAULT '';
