#include "hooks.h"

namespace numscope {
namespace {

bool is_input(PyObject* base, PyObject* args, PyObject* kwargs) {
    const auto shares = [base](PyObject* value) {
        if (!is_tensor(value)) return false;
        const Ref own(PyObject_GetAttr(value, names.base));
        forget();
        return value == base || own.get() == base;
    };
    for (Py_ssize_t i = 0; i < PyTuple_Size(args); i++)
        if (shares(PyTuple_GetItem(args, i))) return true;
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &key, &value);)
        if (shares(value)) return true;
    return false;
}

}  // namespace

bool is_paused(PyObject* optimizers) {
    const Ref paused(PyObject_GetAttr(optimizers, names.paused));
    if (paused && PyDict_Size(paused.get()) == 0) return false;
    const Ref answer(paused ? PyObject_CallMethod(optimizers, "is_unheard", nullptr) : nullptr);
    return answer.get() != Py_False;
}

Ref own_base(PyObject* output, PyObject* args, PyObject* kwargs) {
    if (!says(torch.is_view, output) || !says(torch.is_contiguous, output)) return Ref();
    Ref base(PyObject_GetAttr(output, names.base));
    const Ref node(is_none(base.get()) ? nullptr : PyObject_GetAttr(base.get(), names.grad_fn));
    forget();
    if (is_none(node.get()) || count_of(torch.numel, base.get()) != count_of(torch.numel, output) || !says(torch.is_contiguous, base.get()))
        return Ref();
    return is_input(base.get(), args, kwargs) ? Ref() : std::move(base);
}

bool hook_gradient(const HookParts& parts, PyObject* tensor, PyObject* hook) {
    Ref hooks(PyObject_GetAttr(tensor, names.backward_hooks));
    if (hooks.get() == Py_None) {
        hooks = Ref(PyObject_CallNoArgs(parts.hook_dict));
        if (!hooks || PyObject_SetAttr(tensor, names.backward_hooks, hooks.get())) return false;
        const Ref node(PyObject_GetAttr(tensor, names.grad_fn));
        const Ref done(is_none(node.get()) ? nullptr : PyObject_CallMethodObjArgs(node.get(), names.register_hook_dict, tensor, nullptr));
        if (!node || (node.get() != Py_None && !done)) return false;
    }
    const Ref key(hooks ? PyIter_Next(parts.ids) : nullptr);
    return key && PyObject_SetItem(hooks.get(), key.get(), hook) == 0;
}

Ref given_to(PyObject* caught) {
    if (!PyErr_ExceptionMatches(PyExc_Exception) || is_none(caught)) return Ref();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    const Ref owned_type(type), error(value), owned_trace(trace);
    return Ref(PyObject_CallFunctionObjArgs(caught, error.get(), nullptr));
}

}  // namespace numscope
