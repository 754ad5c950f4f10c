"""Wire formats of popcorn competitions: case files, task.yml, the result pipe, submission rules. Knows nothing else here."""
