"""A backend that notes how many graphs came and passes them on."""


def counting(name, graphs):
    from torch._dynamo.backends.registry import lookup_backend

    inner = lookup_backend(name)

    def backend(gm, inputs):
        graphs.append(len(gm.graph.nodes))
        return inner(gm, inputs)

    return backend
