package org.example.ledger;

import java.util.ArrayList;
import java.util.List;

/**
 * Adds up entries.
 */
public class Ledger implements Iterable<Ledger.Entry> {
    private static final int LIMIT = 1_000;
    private final List<Entry> entries = new ArrayList<>();

    public enum Side {
        DEBIT,
        CREDIT;

        Side other() {
            return this == DEBIT ? CREDIT : DEBIT;
        }
    }

    interface Visitor<R> {
        R visit(Entry entry);
    }

    @interface Audited {
        String by() default "nobody";
    }

    static class Entry {
        final Side side;
        final long amount;

        Entry(Side side, long amount) {
            this.side = side;
            this.amount = amount;
        }
    }

    public Ledger() {
        // An empty "Ledger" has no entries.
    }

    @Audited(by = "someone")
    public void add(Entry entry) {
        if (entries.size() >= LIMIT) {
            throw new IllegalStateException("full");
        }
        entries.add(entry);
    }

    public <R> List<R> visit(Visitor<R> visitor) {
        List<R> results = new ArrayList<>();
        for (Entry entry : entries) {
            results.add(visitor.visit(entry));
        }
        return results;
    }

    @Override
    public java.util.Iterator<Entry> iterator() {
        return entries.iterator();
    }
}
