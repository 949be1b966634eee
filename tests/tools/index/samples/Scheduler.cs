using System;
using System.Collections.Generic;

namespace Example
{
    public delegate void Tick(int count);

    public enum Mode
    {
        Once,
        Repeat,
    }

    public interface IClock
    {
        DateTime Now { get; }
        void Wait(TimeSpan span);
    }

    public struct Slot
    {
        public int Index;
        public bool Taken;
    }

    /// <summary>Runs what is due.</summary>
    public class Scheduler
    {
        private readonly List<Action> due = new List<Action>();
        public const int Limit = 10;

        public event Tick Ticked;

        public Mode Mode { get; set; }

        public Scheduler(IClock clock)
        {
            clock.Wait(TimeSpan.Zero);
        }

        public void Add(Action action)
        {
            due.Add(action);
        }

        public int RunAll()
        {
            foreach (var action in due)
            {
                action();
            }
            Ticked(due.Count);
            return due.Count;
        }

        private static bool IsFull(int count)
        {
            return count >= Limit;
        }
    }
}
