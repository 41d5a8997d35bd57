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

double num_finite(const Row& row) { return row.numel - row.num_nan - row.num_pos_inf - row.num_neg_inf; }

// Sums about another center. One whose elements are all gone from the row's statistics has no say, so an empty row takes any center.
void move(Row& row, double center) {
    const double d = row.center - center, n = num_finite(row);
    row.center = center;
    if (d == 0 || n == 0) return;
    row.fourth_sum += d * (4 * row.cube_sum + d * (6 * row.square_sum + d * (4 * row.sum + d * n)));
    row.cube_sum += d * (3 * row.square_sum + d * (3 * row.sum + d * n));
    row.square_sum += d * (2 * row.sum + d * n);
    row.sum += d * n;
}

void two_sum(double& high, double& low, double x) {
    const double total = high + x;
    const double from_x = total - high;
    low += (high - (total - from_x)) + (x - from_x);
    high = total;
}

}  // namespace

// The row of fewer elements moves to the center of the other: its rounding errors are the smaller.
void merge(Row& into, const Row& more) {
    Row part = more;
    if (into.center != part.center) num_finite(into) < num_finite(part) ? move(into, part.center) : move(part, into.center);
    merge_health(into, part);
    into.sum += part.sum;
    into.abs_sum += part.abs_sum;
    into.square_sum += part.square_sum;
    into.cube_sum += part.cube_sum;
    into.fourth_sum += part.fourth_sum;
}

Fold::Fold() : error_{} { reset(total_); }

void Fold::add(const Row& more) {
    Row part = more;
    if (num_finite(total_) == 0) total_.center = part.center;
    else if (part.center != total_.center) move(part, total_.center);
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
