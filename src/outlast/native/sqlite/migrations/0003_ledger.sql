-- The ledger's tables: what effects were planned, attempted and done. Code of version 2 goes on beside them.

UPDATE outlast_meta SET version = 3;
