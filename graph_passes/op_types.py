"""Sets of operation types that several modules use."""

__all__ = ["LOOKUPS", "VARIABLES"]

#: Operation types that hold a variable.
VARIABLES = frozenset(["Variable", "VariableV2", "VarHandleOp"])
#: Operation types that look up rows.
LOOKUPS = frozenset(["Gather", "GatherV2", "ResourceGather"])
