// The log of replay/log.py: what operations did, kept in C++ until somebody asks for records.
#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "python.h"

namespace numscope {

// One operation, or a note that Python has made.
struct Note {
    Ref python;                    // a tuple; null: the rest
    Ref put, probe, function;      // what makes a record of it, of which probe; the operator
    Ref keywords;                  // a tuple
    std::vector<Ref> codes;        // of the frames, the innermost first
    std::vector<int64_t> offsets;  // of their instructions
    std::vector<Ref> objects;      // of a tensor its dtype, its storage's weak reference, its name (null: none); another value itself
    std::vector<int64_t> numbers;  // of each tensor: id, storage's address, offset, row, whether it is a parameter, rank, sizes, strides
    std::string given, made;       // layouts: `t` is a tensor, `v` another value, brackets are a list's
    int64_t num_args = 0, seq = -1, past = -1;  // nodes that it made have the numbers from seq on, up to past
    bool differentiable = false;
};

constexpr int64_t NOT_READ = -3, UNOBSERVED = -1;

class Log {
public:
    std::deque<Note> notes;
    int64_t num_noted = 0;  // of the notes, those that Python has not made
    bool has_bad = false;  // a result that was noted is bad

    void clear();

    // A row for a tensor's numbers, read now unless they are known: its number, which is not given twice, UNOBSERVED, or -2 with an exception.
    //
    // `is_written`: the operation at work has written it, and counts its version up only later.
    int64_t read(PyObject* ledger, PyObject* tensor, const Place& place, PyObject* storage, bool is_written);

    bool is_bad(PyObject* ledger, int64_t row) const;

    // The handle of a row in a ledger, which gets it now if it has not got it yet. UNOBSERVED for one that was forgotten meanwhile; -2 with an
    // exception.
    int64_t handle_of(PyObject* ledger, int64_t row, PyObject* dtype, PyObject* shape);

    void look_again() { known_.clear(); }
    size_t num_rows() const { return rows_.size(); }

private:
    struct Read {
        Row row;
        int64_t handle;  // in the ledger; -1: not there yet
    };
    // Null for a row that was forgotten: what runs between a look at a tensor and its note may clear the log.
    const Read* at(int64_t number) const { return number >= num_past_ && size_t(number - num_past_) < rows_.size() ? &rows_[size_t(number - num_past_)] : nullptr; }
    int64_t push(const Read& read) {
        rows_.push_back(read);
        return num_past_ + int64_t(rows_.size()) - 1;
    }

    struct Key {
        PyObject* storage;
        int64_t address, version, dtype;
        std::vector<int64_t> sizes;
        bool operator==(const Key& other) const {
            return storage == other.storage && address == other.address && version == other.version && dtype == other.dtype && sizes == other.sizes;
        }
    };
    struct Hash {
        size_t operator()(const Key& key) const { return std::hash<int64_t>()(key.address * 31 + key.version) ^ std::hash<PyObject*>()(key.storage); }
    };
    std::vector<Read> rows_;
    int64_t num_past_ = 0;  // rows that were forgotten
    std::unordered_map<Key, std::pair<int64_t, Ref>, Hash> known_;  // and what keeps the address of the storage's weak reference
};

void put_note(Log& log, Note&& note);  // at its end; the oldest goes if there are too many

// The log of an object of its type; null for another object.
Log* log_of(PyObject* object);

}  // namespace numscope
