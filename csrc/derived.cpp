// What follows from a row: the numbers of Summary in summary/state.py that need no third or fourth powers, by the same operations.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif
#include <cmath>
#include <limits>

#include "python.h"

namespace numscope {
namespace {

constexpr double ROUNDING = 0x1p-44, TINY = 0x1p-1022, TOLERANCE = 1e-3;  // of state.py
constexpr Py_ssize_t NUM_FIELDS = sizeof(Row) / sizeof(double), NUM_COUNTS = 6, NUM_EXTREMA_END = 10;

enum Code : unsigned char {
    NUM_FINITE, NUM_NONFINITE, NUM_NAN, NUM_INF, MIN, MAX, ABS_MIN, AMAX, ZERO_PCT, SUBNORMAL_PCT, DYNAMIC_RANGE, MEAN, VAR, STD, SAMPLE_STD, RMS, L1_NORM, L2_NORM,
    NUM_CODES
};
constexpr const char* CODE_NAMES[NUM_CODES] = {"num_finite", "num_nonfinite", "num_nan", "num_inf", "min", "max", "abs_min", "amax", "zero_pct", "subnormal_pct",
                                               "dynamic_range", "mean", "var", "std", "sample_std", "rms", "l1_norm", "l2_norm"};

// A number of which something is known: none, left to Python, or itself.
struct Known {
    enum State { NONE, LEFT, VALUE } state;
    double value;
    bool is_whole = false;
};
constexpr Known NONE{Known::NONE, 0}, LEFT{Known::LEFT, 0};
Known value(double x) { return {Known::VALUE, x}; }
Known whole(double x) { return {Known::VALUE, x, true}; }
Known finite_or_none(double x) { return std::isinf(x) ? NONE : value(x); }

class Derived {
public:
    explicit Derived(const Row& row) : row_(row), num_finite_(row.numel - row.num_nan - row.num_pos_inf - row.num_neg_inf) {}

    Known of(unsigned char code) const {
        switch (code) {
            case NUM_FINITE: return whole(num_finite_);
            case NUM_NONFINITE: return whole(row_.num_nan + row_.num_pos_inf + row_.num_neg_inf);
            case NUM_NAN: return whole(row_.num_nan);
            case NUM_INF: return whole(row_.num_pos_inf + row_.num_neg_inf);
            case MIN: return finite_or_none(row_.min);
            case MAX: return finite_or_none(row_.max);
            case ABS_MIN: return finite_or_none(row_.abs_min);
            case AMAX: return finite_or_none(row_.abs_max);
            case ZERO_PCT: return row_.numel > 0 ? value(100.0 * row_.num_zero / row_.numel) : NONE;
            case SUBNORMAL_PCT: return row_.numel > 0 ? value(100.0 * row_.num_subnormal / row_.numel) : NONE;
            case DYNAMIC_RANGE:
                if (std::isinf(row_.abs_max) || std::isinf(row_.abs_min)) return NONE;
                return row_.abs_max > 0 && row_.abs_min > 0 ? value(std::log2(row_.abs_max) - std::log2(row_.abs_min)) : LEFT;
            case MEAN: return num_finite_ > 0 && has_moments() && std::isfinite(row_.sum) ? value(row_.center + row_.sum / num_finite_) : NONE;
            case VAR: return variance();
            case STD: return root(variance(), 1);
            case SAMPLE_STD: {
                const Known found = variance();
                if (found.state != Known::VALUE) return found;
                return num_finite_ < 2 ? NONE : value(std::sqrt(found.value * num_finite_ / (num_finite_ - 1)));
            }
            case RMS: return num_finite_ > 0 ? root(square_sum(), num_finite_) : NONE;
            case L1_NORM: return has_moments() && std::isfinite(row_.abs_sum) ? value(row_.abs_sum) : NONE;
            case L2_NORM: return root(square_sum(), 1);
            default: return LEFT;
        }
    }

private:
    bool has_moments() const { return std::isinf(row_.abs_min) || row_.abs_sum != 0; }

    static Known root(Known of, double over) { return of.state == Known::VALUE ? value(std::sqrt(of.value / over)) : of; }

    Known variance() const {
        if (num_finite_ <= 0 || !has_moments()) return NONE;
        if (row_.min == row_.max || (std::isinf(row_.min) && std::isinf(row_.max))) return value(0.0);
        const double mean = row_.sum / num_finite_, square = row_.square_sum / num_finite_, var = square - mean * mean;
        return var > 0 && var < INFINITY && 3 * ROUNDING * square + TINY <= TOLERANCE * var ? value(var) : NONE;
    }

    // `known_square_sum`
    Known square_sum() const {
        const double n = num_finite_, b = row_.square_sum, c = row_.center;
        const double total = c == 0 ? b : b + c * (2 * row_.sum + c * n);
        if (!has_moments() || !std::isfinite(total)) return NONE;
        if (std::isinf(row_.abs_max) || row_.abs_max == 0) return value(total);
        return 3 * ROUNDING * (b + n * c * c) + n * TINY <= TOLERANCE * total ? value(total) : NONE;
    }

    const Row& row_;
    const double num_finite_;
};

// Reads a list of floats as a row; false if it is none, or its counts are no counts.
bool read_row(PyObject* list, Row& row) {
    if (!PyList_Check(list) || PyList_Size(list) < NUM_FIELDS) return false;
    double* fields = &row.numel;
    for (Py_ssize_t i = 0; i < NUM_FIELDS; i++) {
        PyObject* number = PyList_GetItem(list, i);
        if (!PyFloat_Check(number)) return false;
        fields[i] = PyFloat_AsDouble(number);
        if (i < NUM_COUNTS && !(fields[i] >= 0 && fields[i] <= 0x1p53 && fields[i] == std::floor(fields[i]))) return false;
    }
    return row.num_nan + row.num_pos_inf + row.num_neg_inf <= row.numel;
}

Ref as_object(Known known) {
    if (known.state != Known::VALUE) return Ref::borrowed(Py_None);
    return Ref(known.is_whole ? PyLong_FromDouble(known.value) : PyFloat_FromDouble(known.value));
}

// `fields_of` of state.py, by name.
Ref fields_of(PyObject* list, const Row& row, PyObject* field_names) {
    Ref fields(PyDict_New());
    for (Py_ssize_t i = 0; fields && i < NUM_FIELDS; i++) {
        const double number = (&row.numel)[i];
        const bool is_count = i < NUM_COUNTS, is_none = !is_count && i < NUM_EXTREMA_END && std::isinf(number);
        const Ref field = is_count ? Ref(PyLong_FromDouble(number)) : Ref::borrowed(is_none ? Py_None : PyList_GetItem(list, i));
        if (!field || PyDict_SetItem(fields.get(), PyTuple_GetItem(field_names, i), field.get())) return Ref();
    }
    return fields;
}

}  // namespace

PyObject* derive(PyObject*, PyObject* const* args, Py_ssize_t num_args) {
    char* codes;
    Py_ssize_t count;
    if (num_args != 4 || !PyTuple_Check(args[1]) || PyTuple_Size(args[1]) != NUM_FIELDS || !PyTuple_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "derive(row, field_names, names, codes): expected a row, two tuples and bytes");
    if (PyBytes_AsStringAndSize(args[3], &codes, &count)) return nullptr;
    Row row;
    if (!read_row(args[0], row) || PyTuple_Size(args[2]) != count) Py_RETURN_NONE;
    const Derived derived(row);
    const Ref values(PyDict_New());
    for (Py_ssize_t i = 0; values && i < count; i++) {
        const Known known = derived.of(static_cast<unsigned char>(codes[i]));
        if (known.state == Known::LEFT) Py_RETURN_NONE;
        const Ref number = as_object(known);
        if (!number || PyDict_SetItem(values.get(), PyTuple_GetItem(args[2], i), number.get())) return nullptr;
    }
    const Ref fields = values ? fields_of(args[0], row, args[1]) : Ref();
    return fields ? PyTuple_Pack(2, fields.get(), values.get()) : nullptr;
}

int add_derived(PyObject* module) {
    const Ref all(PyTuple_New(NUM_CODES));
    for (Py_ssize_t i = 0; all && i < NUM_CODES; i++)
        if (PyTuple_SetItem(all.get(), i, PyUnicode_FromString(CODE_NAMES[i]))) return -1;
    return all ? PyModule_AddObjectRef(module, "DERIVED", all.get()) : -1;
}

}  // namespace numscope
