"""What an application's own PostgreSQL database keeps of transactional steps, where the engine's is another one."""
