def problem_of(case,node,ours,truth): return "placed"
def invalid(case,node,ours,complete): return ""
def attribute(x):
    from rte.placement.dra.objects import Attribute
    import msgspec
    return msgspec.convert(x, Attribute)
