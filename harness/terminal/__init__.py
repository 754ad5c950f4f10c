"""What people see on a terminal: a table that fills while cases are measured, and stays. rich draws it."""
