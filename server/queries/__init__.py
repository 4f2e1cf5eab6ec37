"""What is asked of the database and written to it: one module a noun."""
