"""Groups of operations that a placer places as one.

Words for sets of operations:

- colocation group: operations that TensorFlow must run on one device;
- region: the operations around one contraction or lookup, from which rule 3 makes groups;
- group: colocation groups that are placed as one;
- cluster: groups that are merged into one, such as by METIS;
- layer: groups that use the same variables, with the groups around them.
"""
