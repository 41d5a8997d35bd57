// Runs the kernel outside of Python: aarch64 DTYPE NUMEL FILE... prints the row of each file's elements, a number a line.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "../../csrc/observe.h"
#include "../../csrc/select.h"

int main(int argc, char** argv) {
    using namespace numscope;
    printf("%s\n", isa());
    for (int i = 1; i + 2 < argc; i += 3) {
        const int dtype = atoi(argv[i]);
        const int64_t numel = atoll(argv[i + 1]);
        std::vector<char> data(numel * element_bytes(Dtype(dtype)) + 1);
        FILE* file = fopen(argv[i + 2], "rb");
        if (!file || fread(data.data() + 1, 1, data.size() - 1, file) != data.size() - 1) return 1;  // at an odd address
        fclose(file);
        Row row;
        reset(row);
        Entry entry{};
        entry.address = reinterpret_cast<int64_t>(data.data() + 1);
        entry.numel = numel;
        entry.dtype = dtype;
        entry.row_address = reinterpret_cast<int64_t>(&row);
        observe(&entry, 1, HEALTH | MOMENTS | HIGHER, 1);
        const double* numbers = reinterpret_cast<const double*>(&row);
        for (int field = 0; field < 16; field++) printf("%.17g\n", numbers[field]);
    }
    return 0;
}
