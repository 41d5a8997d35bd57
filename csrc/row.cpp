#include <limits>

#include "summary.h"

namespace numscope {

void reset(Row& row) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    row = Row{};
    row.min = row.abs_min = inf;
    row.max = row.abs_max = -inf;
}

void merge(Row& into, const Row& part) {
    into.numel += part.numel;
    into.num_nan += part.num_nan;
    into.num_pos_inf += part.num_pos_inf;
    into.num_neg_inf += part.num_neg_inf;
    into.num_zero += part.num_zero;
    into.num_subnormal += part.num_subnormal;
    if (part.min < into.min) into.min = part.min;
    if (part.max > into.max) into.max = part.max;
    if (part.abs_min < into.abs_min) into.abs_min = part.abs_min;
    if (part.abs_max > into.abs_max) into.abs_max = part.abs_max;
    into.sum += part.sum;
    into.abs_sum += part.abs_sum;
    into.square_sum += part.square_sum;
    into.cube_sum += part.cube_sum;
    into.fourth_sum += part.fourth_sum;
}

}  // namespace numscope
