// Python objects from C++, within the limited interface: references that give themselves back, and what is asked of tensors.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <vector>

#include "observe.h"
#include "summary.h"

namespace numscope {

constexpr int64_t RELEASE_NUMEL = 65536;  // about 10 µs of work; for less, releasing the interpreter lock costs more than it gains

// An owned reference, or null, mostly with an exception set.
class Ref {
public:
    explicit Ref(PyObject* object = nullptr) : object_(object) {}
    Ref(Ref&& other) noexcept : object_(other.release()) {}
    ~Ref() { Py_XDECREF(object_); }
    Ref& operator=(Ref&& other) noexcept {
        PyObject* old = object_;
        object_ = other.release();
        Py_XDECREF(old);
        return *this;
    }
    static Ref borrowed(PyObject* object) {
        Py_XINCREF(object);
        return Ref(object);
    }
    PyObject* get() const { return object_; }
    PyObject* release() {
        PyObject* object = object_;
        object_ = nullptr;
        return object;
    }
    explicit operator bool() const { return object_ != nullptr; }

private:
    PyObject* object_;
};

// What the host path knows of torch: given once, by `know_torch`, in this order.
struct Torch {
    PyObject *tensor, *parameter;                                                                     // classes
    PyObject *is_neg, *is_contiguous, *numel, *detach, *is_floating_point, *untyped_storage;  // methods of tensors
    PyObject *is_view;
    PyObject *function_mode_on, *sequence_nr, *tracing_state, *num_dispatch_modes, *dispatch_mode, *proxy, *fake, *task, *is_grad_enabled;  // of torch._C
    PyObject* dtypes[NUM_DTYPES];                                                                     // by code
};
extern Torch torch;

// Names of attributes, interned.
struct Names {
    PyObject *version, *cdata, *dtype, *shape, *base, *rows, *weights;
    PyObject *handle, *version_read, *address, *groups, *parameter, *gradient_slots, *grad, *is_leaf;
    PyObject *paused, *grad_fn, *backward_hooks, *register_hook_dict, *requires_grad, *output;
    PyObject *f_back, *f_code, *f_lasti, *co_name, *co_filename, *module;
};
extern Names names;

// Forgets the exception that is set. An interrupt is none of ours: it is raised again in the script.
void forget();

bool knows_torch();                                // else an exception is set
int64_t number_of(PyObject* number);               // -2 with an exception if it is none
bool is_plain(PyObject* object);                   // a Tensor or Parameter, of no subclass
bool is_tensor(PyObject* object);                  // of any class
bool says(PyObject* method, PyObject* tensor);     // calls a method that answers true or false; false, without an exception, if it raises
bool has(PyObject* object, PyObject* name);        // whether an attribute is true; false if it raises
int64_t version_of(PyObject* tensor);              // -1 for an inference tensor
bool is_traced();                                  // see probe/calls.py; true where it can't be known
bool is_in_backward();                             // whether autograd is at work on this thread, or it can't be known
bool is_grad_enabled();
int64_t count_at(PyObject* object, PyObject* name);  // an attribute that is a number; -1, without an exception, if there is none
bool is_left_to_python();                          // under a function mode, which would see what is asked of tensors, and for tests

// Calls a method that answers with a number; -1, without an exception, if it raises.
int64_t count_of(PyObject* method, PyObject* tensor);

// leave_to_python(bool): have Python's methods read all tensors.
PyObject* leave_to_python(PyObject*, PyObject* const* args, Py_ssize_t num_args);

// Whether the kernel can read the tensor as it is: contiguous, in CPU memory. Never raises.
bool readable(PyObject* tensor, Entry& entry);

bool is_on_device(PyObject* tensor);  // a plain tensor outside CPU memory

// Where in its storage a tensor lies; sizes and strides are the tensor's own.
struct Place {
    int64_t offset, dim, *sizes, *strides;
    bool is_floating;
};

// False for a tensor that is not strided, not in CPU memory, or of a dtype that no kernel reads. Never raises.
bool place_of(PyObject* tensor, Place& place);

int64_t address_of(PyObject* tensor);  // of its first element; -1 if it has no memory

Ref gradient_slot(PyObject* entry, PyObject* slot);  // what `Entry.gradient_slot` gives

Ref shape_of(PyObject* tensor);  // a tuple; null, perhaps with an exception, for a tensor without one

// know_stable(...): the addresses of the functions of torch's stable interface that are used, and a tensor of each dtype by code.
PyObject* know_stable(PyObject*, PyObject* const* args, Py_ssize_t num_args);

// know_torch(...): the fields of `Torch`, in order.
PyObject* know_torch(PyObject*, PyObject* const* args, Py_ssize_t num_args);

template <PyObject* (*F)(PyObject*, PyObject* const*, Py_ssize_t)>
constexpr PyMethodDef method(const char* name, const char* doc) {
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(F)), METH_FASTCALL, doc};
}

// An object of a type of ours begins with its references, so many as its type has.
inline PyObject** references(PyObject* self) { return reinterpret_cast<PyObject**>(self + 1); }

// Puts another object in the place of a reference.
void put(PyObject*& reference, PyObject* object);

template <int NUM_REFERENCES>
int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
    for (int i = 0; i < NUM_REFERENCES; i++) Py_VISIT(references(self)[i]);
    return 0;
}

template <int NUM_REFERENCES>
int clear(PyObject* self) {
    for (int i = 0; i < NUM_REFERENCES; i++) Py_CLEAR(references(self)[i]);
    return 0;
}

template <int NUM_REFERENCES>
void dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    clear<NUM_REFERENCES>(self);
    PyTypeObject* type = Py_TYPE(self);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

// Makes a type of objects of the struct T and adds it to the module. Null with an exception.
template <class T, int NUM_REFERENCES>
PyObject* add_type(PyObject* module, const char* name, const char* full_name, PyMethodDef* methods, PyGetSetDef* properties, ternaryfunc call = nullptr) {
    PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<NUM_REFERENCES>)},
        {Py_tp_traverse, reinterpret_cast<void*>(traverse<NUM_REFERENCES>)},
        {Py_tp_clear, reinterpret_cast<void*>(clear<NUM_REFERENCES>)},
        {Py_tp_methods, methods},
        {Py_tp_getset, properties},
        {call ? Py_tp_call : 0, reinterpret_cast<void*>(call)},
        {0, nullptr},
    };
    PyType_Spec spec = {full_name, sizeof(T), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
    PyObject* type = PyType_FromSpec(&spec);
    return type && PyModule_AddObjectRef(module, name, type) == 0 ? type : nullptr;
}

int add_ledger(PyObject* module);
int add_weights(PyObject* module);
int add_journal(PyObject* module);
int add_log(PyObject* module);
int add_noting(PyObject* module);
int add_witness(PyObject* module);
int add_derived(PyObject* module);

// derive(row, field_names, names, codes): see derived.cpp.
PyObject* derive(PyObject*, PyObject* const* args, Py_ssize_t num_args);

bool is_ledger(PyObject* object);
bool is_weights(PyObject* object);
bool is_bad_row(PyObject* ledger, int64_t handle);  // whether a handle's row has a nan or an inf, or is not in CPU memory
bool is_held(PyObject* ledger);  // whether a thread has its lock in Python

// What `Ledger.observe` returns, for other types: a handle, -1 if unobserved, or -2 with an exception.
int64_t observe_tensor(PyObject* ledger, PyObject* tensor, PyObject* shape);

// What `Weights.observe` returns: a handle of the weights' ledger, -1 if unobserved, or -2 with an exception.
int64_t observe_weight(PyObject* weights, PyObject* parameter);

// A tensor that is to be read into a handle's row, as `place` of ledger.cpp does it for a new row. Returns: 1; 0 if it is for Python; -1 with
// an exception.
int rewrite(PyObject* ledger, int64_t handle, PyObject* tensor, Entry& entry);

// Reads entries whose rows are given by number, while other threads run if it takes long; `again`: into rows that are emptied before.
void read_rows(PyObject* ledger, std::vector<Entry>& entries, int num_threads, bool again);

const Row* row_at(PyObject* ledger, int64_t row);
int64_t groups_of(PyObject* ledger);

// Puts a handle, or None for a tensor that is for Python, into a list.
bool put_handle(PyObject* list, Py_ssize_t at, int64_t handle);

}  // namespace numscope
