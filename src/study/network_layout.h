// Where the nodes of a network stand in a picture. In tiers, by their distance from the hosts: hosts lowest,
// then leaves, spines and cores; hosts of one switch stand next to each other, a switch above what hangs on
// it. Networks that have no top, as most links join nodes of one tier (rings, meshes, tori), stand on a
// circle.
#pragma once

#include <string>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::study {

struct Place {
  double x = 0, y = 0;  // pixels; y points down
  int tier = 0;         // 0: worker; else hops to the nearest worker
  double angle = 0;     // radians, seen from the centre of the circle; 0 in tiers
};

struct Layout {
  std::vector<Place> places;  // by node
  int tiers = 0;              // the highest there is
  bool round = false;
  double radius = 0;          // round: of the workers' circle, about (0, 0)
  double width = 0;           // else: of the tiers, from x = 0; hosts begin at y = 0
  int host_rows = 1;          // many hosts of one switch stand below each other
  std::vector<double> steps;  // by tier: from one node to the next, at least
};

// Depends on nothing but the network.
Layout lay_out(const cluster::Cluster& network);

// "hosts", "leaves", "spines", "cores": of `tier` where the highest is `tiers`.
std::string tier_name(int tier, int tiers);

// A name as far as a picture has room for it, printable, and how wide it is at 11 pixels.
std::string short_name(const cluster::Node& node);
double name_width(const cluster::Node& node);

}  // namespace talweg::study
