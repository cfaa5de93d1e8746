"""How sessions on one machine are found: records, places, liveness, watching."""
