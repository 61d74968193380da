# Joins expected time, control charts and diagnosis over the ledgers that arrive; core.py is pure, shell.py
# gives it a thread.
