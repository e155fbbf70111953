"""The benchmark: outlast and its peers side by side, on one machine, in one run. It measures; it never tunes the engine."""
