"""What tuning did, to look at: a page over a database (`server`), and the same views as one file (`report`).

Read `views.py` first: it lists the views and who makes the data of each. All of it is plain data, computed
from records alone; nothing here writes to the database or measures.
"""
