-- What runs wait for by name, and what people are asked. Code of version 2 goes on beside it.

UPDATE outlast_meta SET version = 4;
