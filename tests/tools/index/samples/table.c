/* A hash table with open addressing. */
#include <stdlib.h>
#include <string.h>

#define MIN_SIZE 8
#define IS_EMPTY(slot) ((slot)->key == NULL)

typedef unsigned long hash_t;
typedef int (*compare_fn)(const void *, const void *);

enum policy {
    POLICY_KEEP,
    POLICY_REPLACE = 2
};

struct slot {
    char *key;
    void *value;
    hash_t hash;
};

typedef struct table {
    struct slot *slots;
    size_t used, mask;
    compare_fn compare;
} table_t;

union word {
    int number;
    char bytes[4];
};

static int resizes = 0;
const char *table_version = "1.0";

static hash_t hash_of(const char *key)
{
    hash_t hash = 5381;
    while (*key)
        hash = hash * 33 + (unsigned char)*key++;
    return hash;
}

static struct slot *lookup(table_t *table, const char *key)
{
    hash_t hash = hash_of(key);
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct slot *slot = &table->slots[i];
        if (IS_EMPTY(slot) || strcmp(slot->key, key) == 0)
            return slot;
    }
}

/* The value of a key, or NULL. */
void *table_get(table_t *table, const char *key)
{
    return lookup(table, key)->value;
}

int table_set(table_t *table, char *key, void *value, enum policy policy)
{
    struct slot *slot = lookup(table, key);
    if (!IS_EMPTY(slot) && policy == POLICY_KEEP)
        return 0;
    slot->key = key;
    slot->value = value;
    slot->hash = hash_of(key);
    resizes += table->used > table->mask / 2;
    return 1;
}
