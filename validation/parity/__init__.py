"""How far an output may be from its reference, and whether it is: metrics as data, the budget, the judgement.

Nothing here runs a model.
"""
