// Small changes of a placement, drawn at random.
//
// A move takes one cluster of a level; a cluster and its neighbors; a stretch of clusters in the
// order of the graph; one end of a transfer to where the other is; or it exchanges two clusters.

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

  // Draws from 1 to count, small numbers more often: every order of magnitude as often as others.
  int64_t draw_order(int64_t count) const {
    return static_cast<int64_t>(std::pow(static_cast<double>(count), draw()));
  }
};

// What moves are drawn from. The last level is that of single groups.
struct MoveTables {
  const int32_t* num_clusters;      // [num_levels]
  const int32_t* cluster_of;        // [num_levels, num_groups]
  const int32_t* members_start;     // [num_levels, num_groups + 1]
  const int32_t* members;           // [num_levels, num_groups]
  const int32_t* order;             // [num_levels, num_groups]
  const int32_t* position;          // [num_levels, num_groups]
  const int64_t* neighbors_start;  // [num_levels, num_groups + 1], of all levels
  const int32_t* neighbors;        // of all levels
  const uint8_t* legal;             // [num_groups, num_devices]
  const double* cumulated;          // [num_groups], how often a group is drawn, added up
  int64_t num_levels;
  int64_t num_groups;
  int64_t num_devices;
};

// What a step waits for: the groups and the transfers on its critical path.
struct HotSpots {
  const int32_t* groups;     // [num_items]
  const double* cumulated;   // [num_items]
  const int32_t* transfers;  // [num_transfers, 2], (group that sends, group that receives)
  int64_t num_items;
  int64_t num_transfers;
};

// A move: groups that go elsewhere, none twice.
struct DrawnMove {
  int64_t* groups;    // [num_groups]
  int64_t* devices;   // [num_groups], where they go
  int32_t* kind;      // [2], what it is, and its level
  int32_t* clusters;  // [num_groups], working space
  int64_t* marks;     // [num_groups + 1], working space
};

class MoveDrawer {
 public:
  MoveDrawer(const MoveTables& tables, const HotSpots& hot, const DrawnMove& drawn, Random random)
      : tables_(tables), hot_(hot), drawn_(drawn), random_(random) {}

  // Draws a move; returns how many groups go elsewhere, 0 if nothing was found that changes anything.
  int64_t draw(const int32_t* placement, double coarse_share) const {
    // Draws that change nothing cost little beside a simulation.
    for (int number = 0; number < kMaxDraws; ++number) {
      const int64_t count = draw_once(placement, coarse_share);
      if (count > 0) return count;
    }
    return 0;
  }

 private:
  enum Kind { kOne, kNeighbors, kStretch, kJoin, kSwap, kNumKinds };

  // How often a move starts from what the step waits for, where that is known.
  static constexpr double kHotShare = 0.8;
  // How often a move takes along only what is where it starts.
  static constexpr double kSameDeviceShare = 0.6;
  // How often neighbors of neighbors come along, and of how many neighbors.
  static constexpr double kFurtherShare = 0.5;
  static constexpr int64_t kMaxFurther = 8;
  // The longest stretch of single groups; more are moved as clusters.
  static constexpr int64_t kMaxStretch = 200;
  // How often a cluster is exchanged for one that is close in the order of the graph.
  static constexpr double kCloseShare = 0.5;
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

  // Draws a place, weighed by what was added up.
  int64_t draw_weighed(const double* cumulated, int64_t count) const {
    const double wanted = random_.draw() * cumulated[count - 1];
    const int64_t at = std::upper_bound(cumulated, cumulated + count, wanted) - cumulated;
    return std::min(at, count - 1);
  }

  // Draws a group, long ones and those that the step waits for more often.
  int64_t draw_anchor() const {
    if (hot_.num_items > 0 && random_.draw() < kHotShare) {
      return hot_.groups[draw_weighed(hot_.cumulated, hot_.num_items)];
    }
    return draw_weighed(tables_.cumulated, tables_.num_groups);
  }

  // Draws two groups that exchange a tensor, in any order; -1 if there are none.
  std::pair<int64_t, int64_t> draw_ends(int64_t level) const {
    int64_t one, other;
    if (hot_.num_transfers > 0 && random_.draw() < kHotShare) {
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
    if (random_.draw() < kCloseShare) {
      const int64_t count = num_clusters(level);
      int64_t distance = random_.draw_order(count);
      if (random_.draw() < 0.5) distance = -distance;
      const int64_t at =
          std::min(std::max<int64_t>(position(level, cluster) + distance, 0), count - 1);
      return member(level, members_start(level, in_order(level, at)));
    }
    return draw_anchor();
  }

  // Adds a cluster to those of the move unless it is one; returns how many there are.
  int64_t add_cluster(int32_t cluster, int64_t count) const {
    const int64_t mark = drawn_.marks[tables_.num_groups];
    if (drawn_.marks[cluster] == mark) return count;
    drawn_.marks[cluster] = mark;
    drawn_.clusters[count] = cluster;
    return count + 1;
  }

  // Adds the groups of a cluster that may and do not go to a device yet; returns the count.
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

  // Draws once; returns how many groups go elsewhere.
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
      if (!is_coarse && random_.draw() < kFurtherShare) {
        const int64_t num_first = std::min(count, kMaxFurther);
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
    const bool takes_same = (is_coarse && kind == kOne) || random_.draw() < kSameDeviceShare;
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
