import setuptools

# All metadata is in pyproject.toml.
setuptools.setup()
