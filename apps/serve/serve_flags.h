#pragma once
// What `quintet serve` may be told.

#include <string>
#include <vector>

#include "apps/drafts/draft_flags.h"
#include "apps/flags/compute_flags.h"
#include "apps/flags/decode_flags.h"
#include "apps/flags/quantize_flag.h"
#include "apps/process/ranks.h"
#include "apps/serve/service.h"

namespace quintet::serve {

struct ServeFlags {
  std::string model_dir, keys_file;
  std::vector<std::string> adapters;  // NAME=DIR or DIR
  std::vector<std::string> allowed_hosts;
  HttpOptions http;
  ServiceOptions service;
  int64_t cache_mib = 1024, answers_mib = 512;
  double drain_seconds = 90;
  bool pipe = false;  // requests come on standard input
  DecodeFlags decode;
  DraftFlags drafts;
  QuantizeFlag quantize;
  CacheFlag cache;
  ComputeFlags compute;
  RankFlags ranks;

  void add_to(CLI::App& app);
  /// How requests are answered that do not say. Throws usage errors.
  void set_defaults();
  /// Without what protects a server from its clients, but for what was given: the only one is the program that started
  /// this one. Throws a usage error for flags of a port, and at a terminal.
  void trust_client(const CLI::App& app);
};

}  // namespace quintet::serve
