"""Wire formats of popcorn competitions: case files, task.yml, the result pipe, submission rules, HTTP, and a client of it.

Knows nothing else here.
"""
