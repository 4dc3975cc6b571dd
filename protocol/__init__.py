"""The protocol as a model that is small enough to be explored whole.

Three models, each a few hundred lines: what becomes of a delivery (delivery), how the router finds
every event (reading), and who is owed which event (eligibility). A statement of the product is one
step here; between any two steps every other process may act, and any process may die. explore.py
visits every state that can be reached.

The statuses, their moves and the decision after a result are those of surehook.model.states, the
cursors those of the routers' stores: what changes there changes here.

Not part of the product, and not in the wheel. `python -m protocol` runs and prints all of it.
"""
