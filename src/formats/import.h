// Reading networks that others have written down.
//
//   Cluster cluster = load_any("ndv4-topo.xml");    // the format is recognised
//
// format     file                                    what it becomes
// talweg     Talweg's own YAML or JSON               see cluster.h
// nccl       NCCL's topology XML (NCCL_TOPO_FILE)    GPUs are workers; NVLink, NVSwitch, PCIe, sockets, NICs
// taccl      TACCL's topology JSON                   the GPUs of one server
// adapcc     AdapCC's logical graph XML              GPUs behind NICs behind one switch; rates are assumed
// astra_sim  ASTRA-sim's analytical network YAML     NPUs in rings, meshes, switches, by dimension
// htsim      htsim's fat tree, `.topo`               hosts, switches and links of two or three tiers
//
// Each importer stands in its own file, with what it assumes where the format is silent. What an importer
// cannot express it refuses by name. All throw Error{bad_file}: file, line, what was expected.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cluster/cluster.h"

namespace talweg::formats {

using cluster::Cluster;

enum class Format { talweg, nccl, taccl, adapcc, astra_sim, htsim };

const char* name(Format format);
const std::vector<Format>& formats();
// Throws Error{invalid_argument} that lists the names there are.
Format parse_format(const std::string& text);

// By what the text says and, where that leaves it open, by the ending of `origin`. A file of a kind that is
// known but is no network (a strategy, say) is refused by name.
Format recognise(const std::string& text, const std::string& origin);

// Whether YAML or JSON has this key of a map, wherever: `key:`, `"key" :`. Reading all of a large file only
// to see what it is would read it twice.
bool has_key(std::string_view text, std::string_view key);

// `origin` is what the text is called in messages.
Cluster import_text(Format format, const std::string& text, const std::string& origin);
Cluster load_any(const std::string& path);
Cluster load(Format format, const std::string& path);

Cluster import_nccl(const std::string& text, const std::string& origin);
Cluster import_taccl(const std::string& text, const std::string& origin);
Cluster import_adapcc(const std::string& text, const std::string& origin);
Cluster import_astra_sim(const std::string& text, const std::string& origin);
Cluster import_htsim(const std::string& text, const std::string& origin);

}  // namespace talweg::formats
