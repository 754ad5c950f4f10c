"""How Alembic runs the migrations: in the connection, and so in the transaction, that the store hands over."""

from alembic import context

from leaderboard.store.models import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True, compare_type=False
)
with context.begin_transaction():
    context.run_migrations()
