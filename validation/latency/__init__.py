"""How long each candidate takes: measured in turns, with the spread, the floor and where the time goes.

`record.py` holds the data. Nothing here compares values; nothing outside reads a clock for a verdict.
"""
