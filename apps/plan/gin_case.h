#pragma once
// The training step of a model that gin files define, for `quintet plan` and `quintet bench layouts`.

#include "apps/config/gin_session.h"
#include "apps/plan/model_case.h"

namespace quintet {

/// The configuration of gin files that bind MODEL; its vocabularies are not read, sizes are the
/// model's own, and DROPOUT_RATE is 0 if the files leave it %gin.REQUIRED, which is told. Throws a usage error naming `verb` if there is no file.
std::unique_ptr<GinSession> model_session(const std::string& verb, gin::CommandLine line);
/// The model that `binding` of a session has, which must outlive the case, with its own optimizer on random batches of
/// bench.batch rows. Any thread may make it.
LayoutCase gin_case(const ModelCase& bench, GinSession& session,
                    const std::string& binding = "MODEL");
/// Gives a case the same model with layers that are computed again; returns its session, which must
/// outlive the case.
std::unique_ptr<GinSession> add_remat(LayoutCase& what, const ModelCase& bench,
                                      gin::CommandLine line);

}  // namespace quintet
