// The Python module `numscope.summary._native`. It takes addresses, so it needs no torch headers and works with every version of torch. The
// caller guarantees that the memory lives through the call, is contiguous, and has the given dtype.
#include <cmath>

#include "checksum.h"
#include "decode.h"
#include "extras.h"
#include "observe.h"
#include "python.h"
#include "quantize.h"
#include "select.h"
#include "sketch.h"

namespace {

using namespace numscope;

bool integers(PyObject* const* args, Py_ssize_t num_args, int64_t* out, Py_ssize_t expected, const char* signature) {
    if (num_args != expected) {
        PyErr_Format(PyExc_TypeError, "%s: got %zd arguments, expected %zd", signature, num_args, expected);
        return false;
    }
    for (Py_ssize_t i = 0; i < expected; i++) {
        out[i] = PyLong_AsLongLong(args[i]);
        if (out[i] == -1 && PyErr_Occurred()) return false;
    }
    return true;
}

bool valid(const Entry& entry) {
    const bool known = entry.dtype >= 0 && entry.dtype < NUM_DTYPES;
    if (known && entry.numel >= 0 && entry.row_address && (entry.address || entry.numel == 0)) return true;
    PyErr_Format(PyExc_ValueError,
                 "observe: got address %lld, numel %lld, dtype code %lld, row address %lld; expected memory, a count, a code below %d, a row",
                 (long long)entry.address, (long long)entry.numel, (long long)entry.dtype, (long long)entry.row_address, int(NUM_DTYPES));
    return false;
}

void observe_and_share(const Entry* entries, int64_t num_entries, int64_t numel, int groups, int num_threads) {
    if (numel < RELEASE_NUMEL) return observe(entries, num_entries, groups, num_threads);
    PyThreadState* state = PyEval_SaveThread();
    observe(entries, num_entries, groups, num_threads);
    PyEval_RestoreThread(state);
}

PyObject* py_observe(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[6];
    if (!integers(args, num_args, v, 6, "observe(address, numel, dtype_code, row_address, groups, num_threads)")) return nullptr;
    const Entry entry{v[0], v[1], v[2], v[3]};
    if (!valid(entry)) return nullptr;
    observe_and_share(&entry, 1, entry.numel, int(v[4]), int(v[5]));
    Py_RETURN_NONE;
}

PyObject* py_observe_many(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[4];
    if (!integers(args, num_args, v, 4, "observe_many(entries_address, num_entries, groups, num_threads)")) return nullptr;
    const Entry* entries = reinterpret_cast<const Entry*>(v[0]);
    for (int64_t e = 0; e < v[1]; e++)
        if (!valid(entries[e])) return nullptr;
    observe_and_share(entries, v[1], total_numel(entries, v[1]), int(v[2]), int(v[3]));
    Py_RETURN_NONE;
}

bool valid(const ExtraSpec& spec) {
    bool known = spec.kind >= 0 && spec.kind < NUM_EXTRA_KINDS && spec.offset >= 0;
    if (known && spec.kind == BLOCKWISE) known = spec.first >= 1 && spec.first <= MAX_BLOCK_SIZE && spec.second >= 1 && spec.second <= 7;
    if (!known)
        PyErr_Format(PyExc_ValueError, "observe_extras: got kind %lld, first cell %lld, settings %lld and %lld; expected those of extras.h",
                     (long long)spec.kind, (long long)spec.offset, (long long)spec.first, (long long)spec.second);
    return known;
}

PyObject* py_observe_extras(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[8];
    const char* signature = "observe_extras(address, numel, columns, dtype_code, cells_address, specs_address, num_specs, num_threads)";
    if (!integers(args, num_args, v, 8, signature)) return nullptr;
    const int64_t numel = v[1], columns = v[2], dtype = v[3];
    const bool fits = numel > 0 && v[0] && columns > 0 && numel % columns == 0 && dtype >= 0 && dtype <= F16 && v[4] && (v[5] || !v[6]);
    if (!fits) {
        PyErr_Format(PyExc_ValueError,
                     "observe_extras: got address %lld, numel %lld, columns %lld, dtype code %lld, cells address %lld; expected memory, whole "
                     "rows, a code of %d at most, cells",
                     (long long)v[0], (long long)numel, (long long)columns, (long long)dtype, (long long)v[4], int(F16));
        return nullptr;
    }
    const ExtraSpec* specs = reinterpret_cast<const ExtraSpec*>(v[5]);
    for (int64_t s = 0; s < v[6]; s++)
        if (!valid(specs[s])) return nullptr;
    const void* data = reinterpret_cast<const void*>(v[0]);
    double* cells = reinterpret_cast<double*>(v[4]);
    PyThreadState* state = numel < RELEASE_NUMEL / 8 ? nullptr : PyEval_SaveThread();
    const bool done = observe_extras(data, numel, columns, Dtype(dtype), cells, specs, v[6], int(v[7]));
    if (state) PyEval_RestoreThread(state);
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

bool valid(const QuantizeSpec& s) {
    const bool known = s.fraction_bits >= 1 && s.fraction_bits <= 23 && s.min_exponent >= -126 && s.min_exponent <= 23 && s.max > 0 &&
                       (s.min_exponent == -126 || s.max < 0x1p64) && s.code_bytes >= 0 && s.code_bytes <= 4 && s.code_bytes != 3 &&
                       s.scale_kind >= 0 && s.scale_kind < NUM_SCALE_KINDS && s.block_rows >= 0 && s.block_columns >= 0;
    if (!known) PyErr_SetString(PyExc_ValueError, "cast_quantize: got a specification that is none of quantize.h");
    return known;
}

PyObject* py_cast_quantize(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[12];
    const char* signature =
        "cast_quantize(address, rows, columns, dtype_code, spec_address, scale_address, values_address, codes_address, scale_inv_address, "
        "cells_address, amax_address, num_threads)";
    if (!integers(args, num_args, v, 12, signature)) return nullptr;
    const bool known = v[3] == F32 || v[3] == BF16 || v[3] == F16;
    if (!v[0] || v[1] <= 0 || v[2] <= 0 || !known || !v[4] || !v[8]) {
        PyErr_Format(PyExc_ValueError,
                     "cast_quantize: got address %lld, %lld rows, %lld columns, dtype code %lld; expected memory, elements, float32, bfloat16 or "
                     "float16, a specification, room for scales",
                     (long long)v[0], (long long)v[1], (long long)v[2], (long long)v[3]);
        return nullptr;
    }
    const QuantizeSpec& spec = *reinterpret_cast<const QuantizeSpec*>(v[4]);
    if (!valid(spec)) return nullptr;
    const QuantizeCall call{reinterpret_cast<const void*>(v[0]), v[1], v[2], Dtype(v[3]), reinterpret_cast<const float*>(v[5]),
                            reinterpret_cast<void*>(v[6]), reinterpret_cast<void*>(v[7]), reinterpret_cast<float*>(v[8]),
                            reinterpret_cast<double*>(v[9]), reinterpret_cast<float*>(v[10])};
    if (!quantizes(call, spec)) Py_RETURN_FALSE;
    PyThreadState* state = v[1] * v[2] < RELEASE_NUMEL / 8 ? nullptr : PyEval_SaveThread();
    const bool done = quantize(call, spec, int(v[11]));
    if (state) PyEval_RestoreThread(state);
    if (!done) return PyErr_NoMemory();
    Py_RETURN_TRUE;
}

PyObject* py_cast_amax(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[4];
    if (!integers(args, num_args, v, 4, "cast_amax(address, numel, dtype_code, num_threads)")) return nullptr;
    if (!v[0] || v[1] <= 0 || !(v[2] == F32 || v[2] == BF16 || v[2] == F16))
        return PyErr_Format(PyExc_ValueError, "cast_amax: got address %lld, numel %lld, dtype code %lld; expected float32, bfloat16 or float16",
                            (long long)v[0], (long long)v[1], (long long)v[2]);
    PyThreadState* state = v[1] < RELEASE_NUMEL ? nullptr : PyEval_SaveThread();
    const float amax = quantize_amax(reinterpret_cast<const void*>(v[0]), v[1], Dtype(v[2]), int(v[3]));
    if (state) PyEval_RestoreThread(state);
    return PyFloat_FromDouble(amax);
}

PyObject* py_cast_decode(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[10];
    const char* signature =
        "cast_decode(codes_address, rows, columns, table_address, bytes, values_address, scale_inv_address, block_rows, block_columns, num_threads)";
    if (!integers(args, num_args, v, 10, signature)) return nullptr;
    const bool sized = v[4] == 4 || (v[4] == 2 && !v[6]);
    if (!v[0] || v[1] <= 0 || v[2] <= 0 || !v[3] || !sized || !v[5] || v[7] < 0 || v[8] < 0)
        return PyErr_Format(PyExc_ValueError, "cast_decode: got %lld rows, %lld columns, numbers of %lld bytes; expected codes, a table, room",
                            (long long)v[1], (long long)v[2], (long long)v[4]);
    const DecodeCall call{reinterpret_cast<const uint8_t*>(v[0]), v[1], v[2], reinterpret_cast<const void*>(v[3]), v[4],
                          reinterpret_cast<void*>(v[5]), reinterpret_cast<const float*>(v[6]), v[7], v[8]};
    PyThreadState* state = v[1] * v[2] < RELEASE_NUMEL ? nullptr : PyEval_SaveThread();
    decode(call, int(v[9]));
    if (state) PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

PyObject* py_checksum(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[4];
    if (!integers(args, num_args, v, 4, "checksum(entries_address, num_entries, sums_address, num_threads)")) return nullptr;
    const SumEntry* entries = reinterpret_cast<const SumEntry*>(v[0]);
    for (int64_t e = 0; e < v[1]; e++) {
        const int64_t item = entries[e].item_bytes;
        const bool known = item == 1 || item == 2 || item == 4 || item == 8;
        if (known && entries[e].numel >= 0 && entries[e].first >= 0 && (entries[e].address || !entries[e].numel)) continue;
        return PyErr_Format(PyExc_ValueError, "checksum: got address %lld, numel %lld, elements of %lld bytes, position %lld; expected memory, 1, 2, 4 or 8",
                            (long long)entries[e].address, (long long)entries[e].numel, (long long)item, (long long)entries[e].first);
    }
    PyThreadState* state = total_bytes(entries, v[1]) < 4 * RELEASE_NUMEL ? nullptr : PyEval_SaveThread();
    checksum(entries, v[1], reinterpret_cast<uint64_t*>(v[2]), int(v[3]));
    if (state) PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

PyObject* py_sketch(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[5];
    if (!integers(args, num_args, v, 5, "sketch(entries_address, num_entries, sketches_address, rounds, num_threads)")) return nullptr;
    const SketchEntry* entries = reinterpret_cast<const SketchEntry*>(v[0]);
    int64_t numel = 0;
    for (int64_t e = 0; e < v[1]; e++) {
        const SketchEntry& entry = entries[e];
        numel += entry.numel;
        const bool known = entry.dtype >= 0 && entry.dtype < NUM_DTYPES;
        if (known && entry.numel >= 0 && entry.first >= 0 && (entry.run > 0 || !entry.numel) && (entry.address || !entry.numel)) continue;
        return PyErr_Format(PyExc_ValueError, "sketch: got address %lld, numel %lld, dtype code %lld, first %lld, run %lld; expected memory",
                            (long long)entry.address, (long long)entry.numel, (long long)entry.dtype, (long long)entry.first, (long long)entry.run);
    }
    PyThreadState* state = numel < RELEASE_NUMEL ? nullptr : PyEval_SaveThread();
    sketch(entries, v[1], reinterpret_cast<Sketch*>(v[2]), v[3] != 0, int(v[4]));
    if (state) PyEval_RestoreThread(state);
    Py_RETURN_NONE;
}

bool is_bad(const Row& row) { return !(row.num_nan + row.num_pos_inf + row.num_neg_inf == 0); }

PyObject* py_first_bad(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[2];
    if (!integers(args, num_args, v, 2, "first_bad(block_address, num_rows)")) return nullptr;
    const Row* rows = reinterpret_cast<const Row*>(v[0]);
    for (int64_t i = 0; i < v[1]; i++)
        if (is_bad(rows[i])) return PyLong_FromLongLong(i);
    return PyLong_FromLong(-1);
}

PyObject* py_bad_rows(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[2];
    if (!integers(args, num_args, v, 2, "bad_rows(block_address, num_rows)")) return nullptr;
    const Row* rows = reinterpret_cast<const Row*>(v[0]);
    PyObject* list = PyList_New(0);
    if (!list) return nullptr;
    for (int64_t i = 0; i < v[1]; i++) {
        if (!is_bad(rows[i])) continue;
        PyObject* index = PyLong_FromLongLong(i);
        const bool appended = index && PyList_Append(list, index) == 0;
        Py_XDECREF(index);
        if (!appended) {
            Py_DECREF(list);
            return nullptr;
        }
    }
    return list;
}

PyObject* py_reset(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    int64_t v[2];
    if (!integers(args, num_args, v, 2, "reset(block_address, num_rows)")) return nullptr;
    Row* rows = reinterpret_cast<Row*>(v[0]);
    for (int64_t i = 0; i < v[1]; i++) reset(rows[i]);
    Py_RETURN_NONE;
}

PyObject* py_isa(PyObject*, PyObject* const*, Py_ssize_t) { return PyUnicode_FromString(isa()); }

PyObject* py_choose_isa(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args != 1) return PyErr_Format(PyExc_TypeError, "choose_isa(name): got %zd arguments, expected 1", num_args);
    PyObject* bytes = PyUnicode_AsUTF8String(args[0]);
    if (!bytes) return nullptr;
    const bool chosen = choose_isa(PyBytes_AsString(bytes));
    Py_DECREF(bytes);
    return PyBool_FromLong(chosen);
}

PyObject* py_finalizing(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    if (num_args < 2 || !PyDict_Check(args[0])) return PyErr_Format(PyExc_TypeError, "finalizing(kept, call, ...): got %zd arguments", num_args);
    const Ref rest(PyTuple_New(num_args - 2));
    for (Py_ssize_t i = 2; rest && i < num_args; i++) PyTuple_SetItem(rest.get(), i - 2, Ref::borrowed(args[i]).release());
    const Ref done(rest ? PyObject_CallObject(args[1], rest.get()) : nullptr);
    if (done) Py_RETURN_NONE;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (trace) PyException_SetTraceback(value, trace);
    const Ref kept_type(type), kept(value), kept_trace(trace), thread(PyLong_FromUnsignedLong(PyThread_get_thread_ident()));
    if (!thread || PyDict_SetItem(args[0], thread.get(), kept.get())) return nullptr;
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    method<py_finalizing>("finalizing", "finalizing(kept, call, ...): call it with the rest; an exception is put into the dict by the thread's number."),
    method<py_observe>("observe",
                       "observe(address, numel, dtype_code, row_address, groups, num_threads): merge one tensor's summary into a row."),
    method<py_observe_many>("observe_many",
                            "observe_many(entries_address, num_entries, groups, num_threads): merge many tensors' summaries. "
                            "An entry is four int64: address, numel, dtype_code, row_address."),
    method<py_observe_extras>("observe_extras",
                              "observe_extras(address, numel, columns, dtype_code, cells_address, specs_address, num_specs, num_threads): "
                              "merge one tensor's extra columns into cells. A spec is four int64: kind, first cell, two settings."),
    method<py_cast_quantize>("cast_quantize",
                             "cast_quantize(address, rows, columns, dtype_code, spec_address, scale_address, values_address, codes_address, "
                             "scale_inv_address, cells_address, amax_address, num_threads): quantize a matrix; False, and nothing done, where "
                             "its blocks are too large. A specification is quantize.h's, fields of 8 bytes."),
    method<py_cast_amax>("cast_amax", "cast_amax(address, numel, dtype_code, num_threads): the largest magnitude, nan aside."),
    method<py_cast_decode>("cast_decode",
                           "cast_decode(codes_address, rows, columns, table_address, bytes, values_address, scale_inv_address, block_rows, "
                           "block_columns, num_threads): numbers of one-byte codes from a table of 256, of 2 or 4 bytes; with scales float32."),
    method<py_checksum>("checksum",
                        "checksum(entries_address, num_entries, sums_address, num_threads): 64-bit sums of tensors' bits. An entry is five int64: "
                        "address, numel, bytes of an element, position in bytes, address of the layout or 0."),
    method<py_sketch>("sketch",
                      "sketch(entries_address, num_entries, sketches_address, rounds, num_threads): fingerprints. An entry is six int64: address, "
                      "numel, dtype_code, index of the first element, elements in a run, address of the layout or 0; a fingerprint 38 numbers."),
    method<py_first_bad>("first_bad", "first_bad(block_address, num_rows): index of the first row that counts a nan or inf, or -1."),
    method<py_bad_rows>("bad_rows", "bad_rows(block_address, num_rows): indices of the rows that count a nan or inf."),
    method<py_reset>("reset", "reset(block_address, num_rows): make rows empty."),
    method<py_isa>("isa", "isa(): the instruction set in use."),
    method<py_choose_isa>("choose_isa",
                          "choose_isa(name): use \"baseline\", \"avx2\" or \"avx512\" from now on; False if this processor lacks it."),
    method<derive>("derive", "derive(row, field_names, names, codes): the row's fields by name, and numbers of DERIVED by theirs; None where it is for Python."),
    method<leave_to_python>("leave_to_python", "leave_to_python(bool): have Python's methods read all tensors, as tests do that count reads."),
    method<know_torch>("know_torch", "know_torch(...): what the host path uses of torch; see python.h."),
    method<know_stable>("know_stable", "know_stable(...): what the host path asks of torch's stable interface; see python.h."),
    {nullptr, nullptr, 0, nullptr},
};

// What is known of torch, and the types, are the process's.
int refuse_other_interpreters(PyObject*) {
    static const int64_t first = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (PyInterpreterState_GetID(PyInterpreterState_Get()) == first) return 0;
    PyErr_SetString(PyExc_ImportError, "numscope.summary._native: another interpreter of this process has it, and only one can.");
    return -1;
}

int add_types(PyObject* module) {
    for (auto add : {add_ledger, add_weights, add_journal, add_log, add_noting, add_witness, add_derived})
        if (add(module)) return -1;
    return 0;
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(refuse_other_interpreters)}, {Py_mod_exec, reinterpret_cast<void*>(add_types)}, {0, nullptr}};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "numscope.summary._native", "Summaries and casts of tensors in CPU memory.", 0, methods, slots, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
