#include "python.h"

namespace numscope {

Torch torch;
Names names;

namespace {

// The address of a type, without a reference to it.
PyObject* type_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }

bool left_to_python = false;

Ref ask(PyObject* method, PyObject* tensor) { return Ref(PyObject_CallFunctionObjArgs(method, tensor, nullptr)); }

}  // namespace

void forget() {
    if (!PyErr_Occurred()) return;
    const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
    PyErr_Clear();
    if (interrupted) PyErr_SetInterrupt();
}

void put(PyObject*& reference, PyObject* object) {
    PyObject* old = reference;
    Py_XINCREF(object);
    reference = object;
    Py_XDECREF(old);
}

bool knows_torch() {
    if (!torch.tensor) PyErr_SetString(PyExc_RuntimeError, "numscope.summary._native: used before know_torch(...)");
    return torch.tensor;
}

int64_t number_of(PyObject* number) {
    const int64_t found = PyLong_AsLongLong(number);
    return found == -1 && PyErr_Occurred() ? -2 : found;
}

bool is_plain(PyObject* object) { return type_of(object) == torch.tensor || type_of(object) == torch.parameter; }

bool is_tensor(PyObject* object) {
    if (is_plain(object)) return true;
    if (PyFloat_Check(object) || PyLong_Check(object) || PyUnicode_Check(object) || object == Py_None) return false;
    const int found = PyObject_IsInstance(object, torch.tensor);
    if (found < 0) forget();
    return found > 0;
}

bool says(PyObject* method, PyObject* tensor) {
    const Ref answer = ask(method, tensor);
    if (!answer) forget();
    return answer.get() == Py_True;
}

int64_t count_of(PyObject* method, PyObject* tensor) {
    const Ref answer = ask(method, tensor);
    const int64_t count = answer ? PyLong_AsLongLong(answer.get()) : -1;
    if (count == -1) forget();
    return count;
}

bool has(PyObject* object, PyObject* name) {
    const Ref value(PyObject_GetAttr(object, name));
    if (!value) forget();
    return value.get() == Py_True;
}

int64_t count_at(PyObject* object, PyObject* name) {
    const Ref value(PyObject_GetAttr(object, name));
    const int64_t count = value ? PyLong_AsLongLong(value.get()) : -1;
    if (count == -1) forget();
    return count;
}

int64_t version_of(PyObject* tensor) { return count_at(tensor, names.version); }

bool is_traced() {
    const Ref state(PyObject_CallNoArgs(torch.tracing_state));
    const Ref mode(state.get() == Py_None ? PyObject_CallFunctionObjArgs(torch.dispatch_mode, torch.proxy, nullptr) : nullptr);
    forget();
    return mode.get() != Py_None;
}

bool is_in_backward() {
    const Ref task(PyObject_CallNoArgs(torch.task));
    const int64_t number = task ? PyLong_AsLongLong(task.get()) : 0;
    forget();
    return number != -1;
}

bool is_grad_enabled() {
    const Ref on(PyObject_CallNoArgs(torch.is_grad_enabled));
    forget();
    return on.get() == Py_True;
}

bool is_left_to_python() {
    if (left_to_python) return true;
    const Ref on(PyObject_CallNoArgs(torch.function_mode_on));
    if (!on) forget();
    return on.get() != Py_False;
}

bool readable(PyObject* tensor, Entry& entry) {
    if (!is_plain(tensor) || !has(tensor, names.is_cpu)) return false;
    const Ref dtype(PyObject_GetAttr(tensor, names.dtype));
    if (!dtype) forget();
    entry.dtype = 0;
    while (entry.dtype < NUM_DTYPES && torch.dtypes[entry.dtype] != dtype.get()) entry.dtype++;
    if (entry.dtype == NUM_DTYPES || says(torch.is_neg, tensor) || !says(torch.is_contiguous, tensor)) return false;
    entry.numel = count_of(torch.numel, tensor);
    entry.address = entry.numel < 0 ? -1 : count_of(torch.data_ptr, tensor);
    return entry.address > 0 || (entry.address == 0 && entry.numel == 0);
}

PyObject* leave_to_python(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "leave_to_python(bool): got %zd arguments, expected 1", num_args);
    left_to_python = args[0] == Py_True;
    Py_RETURN_NONE;
}

PyObject* know_torch(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    PyObject** fields = reinterpret_cast<PyObject**>(&torch);
    constexpr Py_ssize_t expected = sizeof(Torch) / sizeof(PyObject*);
    if (num_args != expected) return PyErr_Format(PyExc_TypeError, "know_torch(...): got %zd arguments, expected %zd", num_args, expected);
    for (Py_ssize_t i = 0; i < expected; i++) {
        Py_INCREF(args[i]);  // for ever: torch outlives the process's last tensor
        fields[i] = args[i];
    }
    const char* spelled[] = {"_version", "is_cpu", "dtype", "shape", "_base", "row", "writers", "tape", "odd", "weights",
                             "handle", "version", "address", "groups", "parameter", "gradient_slots", "grad", "is_leaf",
                             "_num_paused", "grad_fn", "_backward_hooks", "_register_hook_dict", "requires_grad", "output",
                             "f_back", "f_code", "f_lasti", "co_name", "co_filename", "<module>"};
    static_assert(sizeof(spelled) / sizeof(*spelled) == sizeof(Names) / sizeof(PyObject*), "a name each");
    for (size_t i = 0; i < sizeof(spelled) / sizeof(*spelled); i++)
        if (!(reinterpret_cast<PyObject**>(&names)[i] = PyUnicode_InternFromString(spelled[i]))) return nullptr;
    Py_RETURN_NONE;
}

}  // namespace numscope
