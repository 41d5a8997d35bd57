#include <limits>

#include "summary.h"

namespace numscope {

void reset(Row& row) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    row = Row{};
    row.min = row.abs_min = inf;
    row.max = row.abs_max = -inf;
}

namespace {

void merge_health(Row& into, const Row& part) {
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
}

void two_sum(double& high, double& low, double x) {
    const double total = high + x;
    const double from_x = total - high;
    low += (high - (total - from_x)) + (x - from_x);
    high = total;
}

}  // namespace

void merge(Row& into, const Row& part) {
    merge_health(into, part);
    into.sum += part.sum;
    into.abs_sum += part.abs_sum;
    into.square_sum += part.square_sum;
    into.cube_sum += part.cube_sum;
    into.fourth_sum += part.fourth_sum;
}

Fold::Fold() : error_{} { reset(total_); }

void Fold::add(const Row& part) {
    merge_health(total_, part);
    two_sum(total_.sum, error_[0], part.sum);
    two_sum(total_.abs_sum, error_[1], part.abs_sum);
    two_sum(total_.square_sum, error_[2], part.square_sum);
    two_sum(total_.cube_sum, error_[3], part.cube_sum);
    two_sum(total_.fourth_sum, error_[4], part.fourth_sum);
}

Row Fold::total() const {
    Row row = total_;
    row.sum = settled(row.sum, error_[0]);
    row.abs_sum = settled(row.abs_sum, error_[1]);
    row.square_sum = settled(row.square_sum, error_[2]);
    row.cube_sum = settled(row.cube_sum, error_[3]);
    row.fourth_sum = settled(row.fourth_sum, error_[4]);
    return row;
}

}  // namespace numscope
