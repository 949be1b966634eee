"""Runs the migrations on the connection it is given, inside that connection's transaction.

`server.store.migrate` is the caller; there is no `alembic.ini`.
"""

from alembic import context

from server.store.tables import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise RuntimeError("migrations run through Store.open(url), which hands its own connection to Alembic")
context.configure(connection=connection, target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
