-- Deliveries wait for their conversation's thread, reminders are taken away again, and what
-- was given up is shown until somebody drops it.
ALTER TABLE delivery ADD COLUMN conversation TEXT NOT NULL DEFAULT '';
ALTER TABLE card ADD COLUMN reminder TEXT;
CREATE INDEX delivery_dead ON delivery (id) WHERE state = 'dead';
