"""What an application's own SQLite database keeps of transactional steps, where the engine's is another one."""
