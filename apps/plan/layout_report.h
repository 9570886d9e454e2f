#pragma once
// A page about layouts: the table, a drawing of where a step's time goes, what is sent and held. One
// HTML file that needs nothing else.

#include <string>
#include <vector>

#include "apps/plan/layouts.h"

namespace quintet {

/// Four digits below 1000, above it all before the point, with commas: 0.8018, 1,634,795.
std::string grouped(double value);

/// A published run and what the plan says about it.
struct PublishedRun {
  std::string name, source;
  std::string unit;  // "sequences/s"; "GB": parameters, gradients and optimizer state of a device
  double published = 0, planned = 0;
  std::string refused;  // why it could not be planned

  double error() const { return planned / published - 1; }
};
std::string published_table(const std::vector<PublishedRun>& runs);

/// `facts`: {name, value}, what was run on what. `published` may be empty.
std::string layout_report(const std::string& title,
                          const std::vector<std::pair<std::string, std::string>>& facts,
                          const std::vector<LayoutRow>& rows,
                          const std::vector<PublishedRun>& published = {});

}  // namespace quintet
