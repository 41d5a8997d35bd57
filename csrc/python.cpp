#include "python.h"

namespace numscope {

Torch torch;
Names names;

namespace {

// The address of a type, without a reference to it.
PyObject* type_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }

bool left_to_python = false;

// Of torch's stable interface in C, by address: each gets a handle, answers through the pointer, and returns 0 if it could.
struct Stable {
    int32_t (*device_type)(void*, int32_t*);
    int32_t (*layout)(void*, int32_t*);
    int32_t (*dtype)(void*, int32_t*);
    int32_t (*is_contiguous)(void*, bool*);
    int32_t (*numel)(void*, int64_t*);
    int32_t (*storage_offset)(void*, int64_t*);
    int32_t (*storage_size)(void*, int64_t*);
    int32_t (*dim)(void*, int64_t*);
    int32_t (*sizes)(void*, int64_t**);
    int32_t (*strides)(void*, int64_t**);
    int32_t (*data_ptr)(void*, const void**);
};
Stable stable;

constexpr int NUM_SCALAR_TYPES = 64;
int8_t codes[NUM_SCALAR_TYPES];  // of torch's scalar types; -1: of none of ours

// What a tensor object holds: the address is the tensor's own as long as the object lives.
void* impl_of(PyObject* tensor) {
    const Ref number(PyObject_GetAttr(tensor, names.cdata));
    void* const impl = number ? PyLong_AsVoidPtr(number.get()) : nullptr;
    if (!impl) forget();
    return impl;
}

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
    const Ref state(PyObject_CallNoArgs(torch.tracing_state)), num(PyObject_CallNoArgs(torch.num_dispatch_modes));
    if (state.get() == Py_None && num && PyLong_AsLong(num.get()) == 0) return false;  // most calls
    const Ref proxy(state.get() == Py_None ? PyObject_CallFunctionObjArgs(torch.dispatch_mode, torch.proxy, nullptr) : nullptr);
    const Ref fake(proxy.get() == Py_None ? PyObject_CallFunctionObjArgs(torch.dispatch_mode, torch.fake, nullptr) : nullptr);
    forget();
    return fake.get() != Py_None;
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
    if (!is_plain(tensor) || says(torch.is_neg, tensor)) return false;
    void* const impl = impl_of(tensor);
    void* const handle = const_cast<void**>(&impl);  // a torch tensor is one pointer
    int32_t device = -1, layout = -1, type = -1;
    bool contiguous = false;
    int64_t offset = 0, bytes = 0;
    const void* address = nullptr;
    const bool known = impl && !stable.device_type(handle, &device) && device == 0 && !stable.layout(handle, &layout) && layout == 0 &&
                       !stable.dtype(handle, &type) && type >= 0 && type < NUM_SCALAR_TYPES && codes[type] >= 0 &&
                       !stable.is_contiguous(handle, &contiguous) && contiguous && !stable.numel(handle, &entry.numel) &&
                       !stable.storage_offset(handle, &offset) && !stable.storage_size(handle, &bytes) && !stable.data_ptr(handle, &address);
    entry.dtype = known ? codes[type] : 0;
    entry.address = reinterpret_cast<int64_t>(address);
    // A storage may have been freed: torch adds a view's offset to nothing.
    return known && (entry.numel == 0 || (address && (offset + entry.numel) * element_bytes(Dtype(entry.dtype)) <= bytes));
}

bool is_on_device(PyObject* tensor) {
    void* const impl = is_plain(tensor) ? impl_of(tensor) : nullptr;
    int32_t device = 0;
    return impl && !stable.device_type(const_cast<void**>(&impl), &device) && device != 0;
}

bool place_of(PyObject* tensor, Place& place) {
    void* const impl = impl_of(tensor);
    void* const handle = const_cast<void**>(&impl);
    int32_t device = -1, layout = -1, type = -1;
    if (!impl || stable.device_type(handle, &device) || device != 0 || stable.layout(handle, &layout) || layout != 0) return false;
    if (stable.dtype(handle, &type) || type < 0 || type >= NUM_SCALAR_TYPES || codes[type] < 0) return false;
    place.is_floating = codes[type] < I64;
    return !stable.dim(handle, &place.dim) && !stable.sizes(handle, &place.sizes) && !stable.strides(handle, &place.strides) && !stable.storage_offset(handle, &place.offset);
}

int64_t address_of(PyObject* tensor) {
    void* const impl = impl_of(tensor);
    const void* address = nullptr;
    return impl && !stable.data_ptr(const_cast<void**>(&impl), &address) ? reinterpret_cast<int64_t>(address) : -1;
}

Ref gradient_slot(PyObject* entry, PyObject* slot) {
    const Ref slots(PyObject_GetAttr(entry, names.gradient_slots));
    if (!slots) return Ref();
    Ref found = Ref::borrowed(PyDict_Check(slots.get()) ? PyDict_GetItemWithError(slots.get(), slot) : nullptr);
    return found || PyErr_Occurred() ? std::move(found) : Ref(PyObject_CallMethod(entry, "gradient_slot", "O", slot));
}

Ref shape_of(PyObject* tensor) {
    void* const impl = impl_of(tensor);
    void* const handle = const_cast<void**>(&impl);
    int64_t dim = 0, *sizes = nullptr;
    if (!impl || stable.dim(handle, &dim) || stable.sizes(handle, &sizes)) return Ref();
    Ref shape(PyTuple_New(Py_ssize_t(dim)));
    for (Py_ssize_t i = 0; shape && i < dim; i++)
        if (PyTuple_SetItem(shape.get(), i, PyLong_FromLongLong(sizes[i]))) return Ref();
    return shape;
}

PyObject* leave_to_python(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "leave_to_python(bool): got %zd arguments, expected 1", num_args);
    left_to_python = args[0] == Py_True;
    Py_RETURN_NONE;
}

PyObject* know_stable(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    constexpr Py_ssize_t num_functions = sizeof(Stable) / sizeof(void*);
    if (num_args != num_functions + NUM_DTYPES)
        return PyErr_Format(PyExc_TypeError, "know_stable(...): got %zd arguments, expected %zd", num_args, num_functions + NUM_DTYPES);
    for (Py_ssize_t i = 0; i < num_functions; i++)
        if (!(reinterpret_cast<void**>(&stable)[i] = PyLong_AsVoidPtr(args[i]))) return PyErr_Format(PyExc_ValueError, "know_stable(...): no address");
    for (int8_t& code : codes) code = -1;
    for (int i = 0; i < NUM_DTYPES; i++) {
        void* const impl = impl_of(args[num_functions + i]);
        int32_t type = -1;
        if (!impl || stable.dtype(const_cast<void**>(&impl), &type) || type < 0 || type >= NUM_SCALAR_TYPES)
            return PyErr_Format(PyExc_ValueError, "know_stable(...): a tensor without a type");
        codes[type] = int8_t(i);
    }
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
    const char* spelled[] = {"_version", "_cdata", "dtype", "shape", "_base", "rows", "weights",
                             "handle", "version", "address", "groups", "parameter", "gradient_slots", "grad", "is_leaf",
                             "_paused", "grad_fn", "_backward_hooks", "_register_hook_dict", "requires_grad", "output",
                             "f_back", "f_code", "f_lasti", "co_name", "co_filename", "<module>"};
    static_assert(sizeof(spelled) / sizeof(*spelled) == sizeof(Names) / sizeof(PyObject*), "a name each");
    for (size_t i = 0; i < sizeof(spelled) / sizeof(*spelled); i++)
        if (!(reinterpret_cast<PyObject**>(&names)[i] = PyUnicode_InternFromString(spelled[i]))) return nullptr;
    Py_RETURN_NONE;
}

}  // namespace numscope
