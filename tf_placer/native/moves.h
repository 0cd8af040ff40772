// Small changes of a placement, drawn at random.
//
// A move takes one cluster of a level; a cluster and its neighbors; a stretch of clusters in the
// order of the graph; one end of a transfer to the device of the other end; or it exchanges two
// clusters.

#ifndef TF_PLACER_NATIVE_MOVES_H_
#define TF_PLACER_NATIVE_MOVES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace tf_placer {

// A bit generator of NumPy.
struct Random {
  void* state;
  double (*next_double)(void*);

  // Draws from 0 to 1, without 1.
  double draw() const { return next_double(state); }

  // Draws from 0 to count, without count.
  int64_t draw_below(int64_t count) const {
    return static_cast<int64_t>(draw() * static_cast<double>(count));
  }

  // Draws from 1 to count, with a uniform distribution of the logarithm.
  int64_t draw_order(int64_t count) const {
    return static_cast<int64_t>(std::pow(static_cast<double>(count), draw()));
  }
};

// The tables that moves are drawn from. The last level has single groups.
struct MoveTables {
  const int32_t* num_clusters;      // [num_levels]
  const int32_t* cluster_of;        // [num_levels, num_groups]
  const int32_t* members_start;     // [num_levels, num_groups + 1]
  const int32_t* members;           // [num_levels, num_groups]
  const int32_t* order;             // [num_levels, num_groups]
  const int32_t* position;          // [num_levels, num_groups]
  const int64_t* neighbors_start;  // [num_levels, num_groups + 1], indices into `neighbors`
  const int32_t* neighbors;        // clusters of all levels
  const uint8_t* legal;             // [num_groups, num_devices]
  const double* cumulated;          // [num_groups], cumulated probabilities of groups
  int64_t num_levels;
  int64_t num_groups;
  int64_t num_devices;
};

// The groups and the transfers on the critical path of a step.
struct HotSpots {
  const int32_t* groups;     // [num_items]
  const double* cumulated;   // [num_items]
  const int32_t* transfers;  // [num_transfers, 2], (sending group, receiving group)
  int64_t num_items;
  int64_t num_transfers;
};

// A move: groups and their new devices, no group twice.
struct DrawnMove {
  int64_t* groups;    // [num_groups]
  int64_t* devices;   // [num_groups], their new devices
  int32_t* kind;      // [2], its kind and its level
  int32_t* clusters;  // [num_groups], working space
  int64_t* marks;     // [num_groups + 1], working space
};

class MoveDrawer {
 public:
  MoveDrawer(const MoveTables& tables, const HotSpots& hot, const DrawnMove& drawn, Random random)
      : tables_(tables), hot_(hot), drawn_(drawn), random_(random) {}

  // Draws a move; returns the number of moved groups, 0 if no draw changed the placement.
  int64_t draw(const int32_t* placement, double coarse_share) const {
    // Retry, because draws without a change cost little compared with a simulation.
    for (int number = 0; number < kMaxDraws; ++number) {
      const int64_t count = draw_once(placement, coarse_share);
      if (count > 0) return count;
    }
    return 0;
  }

 private:
  enum Kind { kOne, kNeighbors, kStretch, kJoin, kSwap, kNumKinds };

  static constexpr double kCriticalPathProbability = 0.8;
  static constexpr double kSameDeviceProbability = 0.6;
  static constexpr double kSecondNeighborsProbability = 0.5;
  static constexpr int64_t kMaxExpandedNeighbors = 8;
  static constexpr int64_t kMaxStretch = 200;
  static constexpr double kCloseSwapProbability = 0.5;
  static constexpr int kMaxDraws = 64;

  int64_t num_clusters(int64_t level) const { return tables_.num_clusters[level]; }
  int64_t cluster_of(int64_t level, int64_t group) const {
    return tables_.cluster_of[level * tables_.num_groups + group];
  }
  int64_t position(int64_t level, int64_t cluster) const {
    return tables_.position[level * tables_.num_groups + cluster];
  }
  int32_t in_order(int64_t level, int64_t at) const {
    return tables_.order[level * tables_.num_groups + at];
  }
  int64_t members_start(int64_t level, int64_t cluster) const {
    return tables_.members_start[level * (tables_.num_groups + 1) + cluster];
  }
  int64_t member(int64_t level, int64_t at) const {
    return tables_.members[level * tables_.num_groups + at];
  }
  int64_t neighbors_start(int64_t level, int64_t cluster) const {
    return tables_.neighbors_start[level * (tables_.num_groups + 1) + cluster];
  }
  int64_t num_near(int64_t level, int64_t cluster) const {
    return neighbors_start(level, cluster + 1) - neighbors_start(level, cluster);
  }
  // Returns, by its number, one of the clusters that a cluster exchanges tensors with.
  int32_t near(int64_t level, int64_t cluster, int64_t number) const {
    return tables_.neighbors[neighbors_start(level, cluster) + number];
  }

  // Draws an index with given cumulated weights.
  int64_t draw_weighed(const double* cumulated, int64_t count) const {
    const double wanted = random_.draw() * cumulated[count - 1];
    const int64_t at = std::upper_bound(cumulated, cumulated + count, wanted) - cumulated;
    return std::min(at, count - 1);
  }

  // Draws a group, with a preference for long groups and for those on the critical path.
  int64_t draw_anchor() const {
    if (hot_.num_items > 0 && random_.draw() < kCriticalPathProbability) {
      return hot_.groups[draw_weighed(hot_.cumulated, hot_.num_items)];
    }
    return draw_weighed(tables_.cumulated, tables_.num_groups);
  }

  // Draws two groups that exchange a tensor, in any order; -1 if there are none.
  std::pair<int64_t, int64_t> draw_ends(int64_t level) const {
    int64_t one, other;
    if (hot_.num_transfers > 0 && random_.draw() < kCriticalPathProbability) {
      const int64_t row = random_.draw_below(hot_.num_transfers);
      one = hot_.transfers[2 * row];
      other = hot_.transfers[2 * row + 1];
    } else {
      one = draw_anchor();
      const int64_t cluster = cluster_of(level, one);
      const int64_t count = num_near(level, cluster);
      if (count == 0) return {-1, -1};
      other = member(level, members_start(level, near(level, cluster, random_.draw_below(count))));
    }
    if (random_.draw() < 0.5) return {one, other};
    return {other, one};
  }

  // Draws a group to exchange a cluster for.
  int64_t draw_other(int64_t level, int64_t cluster) const {
    if (random_.draw() < kCloseSwapProbability) {
      const int64_t count = num_clusters(level);
      int64_t distance = random_.draw_order(count);
      if (random_.draw() < 0.5) distance = -distance;
      const int64_t at =
          std::min(std::max<int64_t>(position(level, cluster) + distance, 0), count - 1);
      return member(level, members_start(level, in_order(level, at)));
    }
    return draw_anchor();
  }

  // Adds a cluster to the move unless it is part of it; returns the number of clusters.
  int64_t add_cluster(int32_t cluster, int64_t count) const {
    const int64_t mark = drawn_.marks[tables_.num_groups];
    if (drawn_.marks[cluster] == mark) return count;
    drawn_.marks[cluster] = mark;
    drawn_.clusters[count] = cluster;
    return count + 1;
  }

  // Adds the groups of a cluster that are not on a device but may go there; returns the count.
  int64_t add_groups(const int32_t* placement, int64_t level, int64_t cluster, int64_t only,
                     int64_t device, int64_t count) const {
    const int64_t end = members_start(level, cluster + 1);
    for (int64_t at = members_start(level, cluster); at < end; ++at) {
      const int64_t group = member(level, at), here = placement[group];
      if (here != device && tables_.legal[group * tables_.num_devices + device] &&
          (only == -1 || only == here)) {
        drawn_.groups[count] = group;
        drawn_.devices[count] = device;
        ++count;
      }
    }
    return count;
  }

  // Draws once; returns the number of moved groups.
  int64_t draw_once(const int32_t* placement, double coarse_share) const {
    const int64_t num_levels = tables_.num_levels;
    const bool is_coarse = num_levels > 1 && random_.draw() < coarse_share;
    const int64_t level = is_coarse ? random_.draw_below(num_levels - 1) : num_levels - 1;
    const int64_t kind = random_.draw_below(kNumKinds);
    int64_t device = random_.draw_below(tables_.num_devices);
    drawn_.kind[0] = static_cast<int32_t>(kind);
    drawn_.kind[1] = static_cast<int32_t>(level);
    ++drawn_.marks[tables_.num_groups];
    int64_t anchor;
    if (kind == kJoin) {
      const auto [end, other] = draw_ends(level);
      if (end < 0) return 0;
      anchor = end;
      device = placement[other];
    } else {
      anchor = draw_anchor();
    }
    const int64_t source = placement[anchor], cluster = cluster_of(level, anchor);
    int64_t count = add_cluster(static_cast<int32_t>(cluster), 0);
    if (kind == kNeighbors) {
      const int64_t num_neighbors = num_near(level, cluster);
      for (int64_t number = 0; number < num_neighbors; ++number) {
        count = add_cluster(near(level, cluster, number), count);
      }
      if (!is_coarse && random_.draw() < kSecondNeighborsProbability) {
        const int64_t num_first = std::min(count, kMaxExpandedNeighbors);
        for (int64_t at = 0; at < num_first; ++at) {
          const int64_t first = drawn_.clusters[at], num_further = num_near(level, first);
          for (int64_t number = 0; number < num_further; ++number) {
            count = add_cluster(near(level, first, number), count);
          }
        }
      }
    } else if (kind == kStretch) {
      const int64_t longest =
          std::min(std::max<int64_t>(2, num_clusters(level) / 2), kMaxStretch);
      const int64_t length = random_.draw_order(longest) + 1;
      const int64_t first =
          std::max<int64_t>(0, position(level, cluster) - random_.draw_below(length));
      count = std::min(length, num_clusters(level) - first);
      for (int64_t at = 0; at < count; ++at) drawn_.clusters[at] = in_order(level, first + at);
    } else if (kind == kSwap) {
      const int64_t other = draw_other(level, cluster);
      device = placement[other];
      if (device == source) return 0;
      const int64_t there = cluster_of(level, other);
      const int64_t num_back = add_groups(placement, level, there, device, source, 0);
      return add_groups(placement, level, cluster, source, device, num_back);
    }
    const bool takes_same =
        (is_coarse && kind == kOne) || random_.draw() < kSameDeviceProbability;
    const int64_t only = takes_same ? source : -1, num_taken = count;
    count = 0;
    for (int64_t at = 0; at < num_taken; ++at) {
      count = add_groups(placement, level, drawn_.clusters[at], only, device, count);
    }
    return count;
  }

  const MoveTables& tables_;
  const HotSpots& hot_;
  const DrawnMove& drawn_;
  const Random random_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_NATIVE_MOVES_H_
