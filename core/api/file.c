/* The unary calls of boxd/file.h. */
#include "api/calls.h"

#include <boxd/file.h>

#define PATH_CALL(function, rpc, stem, Type, INIT, what)                                      \
    struct boxd_call *function(struct boxd_client *c, const char *machine, const char *path,  \
                               boxd_done *done, void *arg)                                    \
    {                                                                                         \
        static const struct api_method method = METHOD(rpc, stem, what, true);                \
        Boxd__Api__V1__##Type##Request q = BOXD__API__V1__##INIT##_REQUEST__INIT;             \
                                                                                              \
        q.vm_id = text(machine);                                                              \
        q.path = text(path);                                                                  \
        return unary_start(c, &method, path, &q.base, answer_nothing, (api_done *)done, arg); \
    }

#define TWO_PATH_CALL(function, rpc, stem, Type, INIT, what)                                  \
    struct boxd_call *function(struct boxd_client *c, const char *machine, const char *from,  \
                               const char *to, boxd_done *done, void *arg)                    \
    {                                                                                         \
        static const struct api_method method = METHOD(rpc, stem, what, true);                \
        Boxd__Api__V1__##Type##Request q = BOXD__API__V1__##INIT##_REQUEST__INIT;             \
                                                                                              \
        q.vm_id = text(machine);                                                              \
        q.old_path = text(from);                                                              \
        q.new_path = text(to);                                                                \
        return unary_start(c, &method, from, &q.base, answer_nothing, (api_done *)done, arg); \
    }

PATH_CALL(boxd_mkdir, Mkdir, mkdir, Mkdir, MKDIR, "make directory")
PATH_CALL(boxd_delete_path, DeletePath, delete_path, DeletePath, DELETE_PATH, "delete")
TWO_PATH_CALL(boxd_rename_path, RenamePath, rename_path, RenamePath, RENAME_PATH, "rename")
TWO_PATH_CALL(boxd_copy_path, CopyPath, copy_path, CopyPath, COPY_PATH, "copy")

static void answer_dir(api_done *done, void *arg, int r, const ProtobufCMessage *m)
{
    const Boxd__Api__V1__ListDirResponse *v = (const void *)m;
    size_t n = r < 0 ? 0 : v->n_entries;
    _cleanup_free_ struct boxd_dir_entry *entries = calloc(n + 1, sizeof *entries);

    if (!entries) {
        n = 0;
        r = -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        const Boxd__Api__V1__DirEntry *e = v->entries[i];

        entries[i] = (struct boxd_dir_entry){ .name = e->name,
                                              .is_dir = e->is_dir,
                                              .size = e->size_bytes,
                                              .permissions = e->permissions,
                                              .modified_at = e->modified_at,
                                              .added_at = e->added_at };
    }
    ((boxd_list_dir_done *)done)(arg, r, entries, n, r >= 0 && v->truncated);
}

struct boxd_call *boxd_list_dir(struct boxd_client *c, const char *machine, const char *path,
                                boxd_list_dir_done *done, void *arg)
{
    static const struct api_method method = METHOD(ListDir, list_dir, "list directory", false);
    Boxd__Api__V1__ListDirRequest q = BOXD__API__V1__LIST_DIR_REQUEST__INIT;

    q.vm_id = text(machine);
    q.path = text(path);
    return unary_start(c, &method, path, &q.base, answer_dir, (api_done *)done, arg);
}
