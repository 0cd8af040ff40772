"""How samples become updates of an agent."""
