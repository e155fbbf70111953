"""What outlast is compared with. Each peer is as fast as its own documentation allows, and does the same durable work."""
