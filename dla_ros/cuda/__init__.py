"""CUDA and cuDLA: calls that are checked, owners that release what they hold, and the kernels.

cuda.bindings is imported by the first call, so these modules load where there is no CUDA.
"""
