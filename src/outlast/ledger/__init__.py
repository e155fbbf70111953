"""The ledger: what effects were planned, attempted and done, in tables of its own. It knows no engine."""
